"""Ulp's networks that classify images, in PyTorch, with the names that `ulp export` writes: what it has exported loads
with `load_state_dict`, strictly. Each is made as make(name, (channels, height, width), classes, width)."""

import math

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, max_pool2d, relu


def divisible(v, q):
    nearest = max(q, math.floor(v / q + 0.5) * q)
    return nearest + q if nearest < 0.9 * v else nearest


def scaled(channels, width):
    return divisible(channels * width, 4 if width <= 0.25 else 8)


def rounded(channels, width):
    return max(1, math.floor(channels * width + 0.5))


def conv(inner, out, kernel=1, stride=1, groups=1, bias=False):
    return nn.Conv2d(inner, out, kernel, stride, kernel // 2, groups=groups, bias=bias)


class Shortcut(nn.Module):
    def __init__(self, inner, out, stride):
        super().__init__()
        self.conv, self.bn = conv(inner, out, 1, stride), nn.BatchNorm2d(out)

    def forward(self, x):
        return self.bn(self.conv(x))


class Layers(nn.Module):
    """Convolutions conv1, conv2 ... with the norms bn1, bn2 ... behind them: (in, out, kernel, stride, groups) each."""

    def __init__(self, *rows, bias=False):
        super().__init__()
        for i, (inner, out, kernel, stride, groups) in enumerate(rows, 1):
            setattr(self, f'conv{i}', conv(inner, out, kernel, stride, groups, bias))
            setattr(self, f'bn{i}', nn.BatchNorm2d(out))

    def normed(self, i, x):
        return getattr(self, f'bn{i}')(getattr(self, f'conv{i}')(x))


class BasicBlock(Layers):
    def __init__(self, inner, planes, stride):
        super().__init__((inner, planes, 3, stride, 1), (planes, planes, 3, 1, 1))
        self.shortcut = nn.Identity() if stride == 1 and inner == planes else Shortcut(inner, planes, stride)
        self.out = planes

    def forward(self, x):
        return relu(self.normed(2, relu(self.normed(1, x))) + self.shortcut(x))


class Bottleneck(Layers):
    def __init__(self, inner, planes, stride):
        self_out = 4 * planes
        super().__init__((inner, planes, 1, 1, 1), (planes, planes, 3, stride, 1), (planes, self_out, 1, 1, 1))
        self.shortcut = nn.Identity() if stride == 1 and inner == self_out else Shortcut(inner, self_out, stride)
        self.out = self_out

    def forward(self, x):
        return relu(self.normed(3, relu(self.normed(2, relu(self.normed(1, x))))) + self.shortcut(x))


class Resnet(Layers):
    def __init__(self, block, stages, blocks, image, classes, width):
        planes = [scaled(channels, width) for channels in stages]
        super().__init__((image[0], planes[0], 3, 1, 1))
        inner = planes[0]
        self.stages = len(stages)
        for stage, (out, count) in enumerate(zip(planes, blocks)):
            layers = []
            for i in range(count):
                layers.append(block(inner, out, 2 if stage > 0 and i == 0 else 1))
                inner = layers[-1].out
            setattr(self, f'layer{stage + 1}', nn.Sequential(*layers))
        self.whole = self.stages == 3  # averages over the whole map, else over windows of 4x4
        windows = 1 if self.whole else image[1] // 32 * (image[2] // 32)
        self.fc = nn.Linear(inner * windows, classes)

    def forward(self, x):
        x = relu(self.normed(1, x))
        for stage in range(self.stages):
            x = getattr(self, f'layer{stage + 1}')(x)
        return self.fc((x.mean((2, 3)) if self.whole else avg_pool2d(x, 4)).flatten(1))


class InvertedResidual(Layers):
    def __init__(self, inner, expansion, out, stride):
        wide = expansion * inner
        super().__init__((inner, wide, 1, 1, 1), (wide, wide, 3, stride, wide), (wide, out, 1, 1, 1))
        self.adds = stride == 1
        self.shortcut = Shortcut(inner, out, 1) if self.adds and inner != out else nn.Identity()

    def forward(self, x):
        y = self.normed(3, relu(self.normed(2, relu(self.normed(1, x)))))
        return y + self.shortcut(x) if self.adds else y


class Mobilenetv2(Layers):
    ROWS = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]

    def __init__(self, image, classes, width):
        inner = scaled(32, width)
        last = divisible(1280 * max(1, width), 4 if width <= 0.25 else 8)
        super().__init__((image[0], inner, 3, 1, 1), (scaled(320, width), last, 1, 1, 1))
        layers = []
        for expansion, planes, blocks, stride in self.ROWS:
            for i in range(blocks):
                out = scaled(planes, width)
                layers.append(InvertedResidual(inner, expansion, out, stride if i == 0 else 1))
                inner = out
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(last * (image[1] // 32) * (image[2] // 32), classes)

    def forward(self, x):
        x = self.layers(relu(self.normed(1, x)))
        return self.fc(avg_pool2d(relu(self.normed(2, x)), 4).flatten(1))


def shuffled(left, right):
    x = torch.cat([left, right], 1)
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleBlock(Layers):
    def __init__(self, channels):
        c = channels // 2
        super().__init__((c, c, 1, 1, 1), (c, c, 3, 1, c), (c, c, 1, 1, 1))

    def forward(self, x):
        left, right = x.chunk(2, 1)
        return shuffled(left, relu(self.normed(3, self.normed(2, relu(self.normed(1, right))))))


class ShuffleDown(Layers):
    def __init__(self, inner, out):
        c = out // 2
        super().__init__((inner, inner, 3, 2, inner), (inner, c, 1, 1, 1), (inner, c, 1, 1, 1), (c, c, 3, 2, c),
                         (c, c, 1, 1, 1))

    def forward(self, x):
        left = relu(self.normed(2, self.normed(1, x)))
        return shuffled(left, relu(self.normed(5, self.normed(4, relu(self.normed(3, x))))))


class Shufflenetv2(Layers):
    CHANNELS = {1: (116, 232, 464, 1024), 0.5: (56, 112, 224, 1024), 0.25: (28, 56, 112, 1024),
                0.1: (12, 24, 48, 1024)}

    def __init__(self, image, classes, width):
        *stages, last = self.CHANNELS[width]
        super().__init__((image[0], 24, 3, 1, 1), (stages[-1], last, 1, 1, 1))
        inner = 24
        for stage, (out, basic) in enumerate(zip(stages, [3, 7, 3]), 1):
            setattr(self, f'layer{stage}',
                    nn.Sequential(ShuffleDown(inner, out), *(ShuffleBlock(out) for _ in range(basic))))
            inner = out
        self.fc = nn.Linear(last * (image[1] // 32) * (image[2] // 32), classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(relu(self.normed(1, x)))))
        return self.fc(avg_pool2d(relu(self.normed(2, x)), 4).flatten(1))


class Fire(Layers):
    def __init__(self, inner, squeeze, expand):
        super().__init__((inner, squeeze, 1, 1, 1), (squeeze, expand, 1, 1, 1), (squeeze, expand, 3, 1, 1), bias=True)

    def forward(self, x):
        x = relu(self.normed(1, x))
        return relu(torch.cat([self.normed(2, x), self.normed(3, x)], 1))


class Squeezenet(Layers):
    ROWS = {1: (96, [(16, 64)] * 2 + [(32, 128)] * 2 + [(48, 192)] * 2 + [(64, 256)] * 2),
            0.5: (48, [(8, 32)] * 2 + [(16, 64)] * 2 + [(24, 96)] * 2 + [(32, 128), (32, 256)]),
            0.25: (24, [(4, 16)] * 2 + [(8, 32)] * 2 + [(12, 48)] * 2 + [(16, 64), (16, 256)]),
            0.1: (12, [(4, 8)] * 2 + [(4, 12)] * 2 + [(8, 20)] * 2 + [(8, 24), (8, 256)])}

    def __init__(self, image, classes, width):
        inner, fires = self.ROWS[width]
        super().__init__((image[0], inner, 3, 1, 1), bias=True)
        for i, (squeeze, expand) in enumerate(fires, 2):
            setattr(self, f'fire{i}', Fire(inner, squeeze, expand))
            inner = 2 * expand
        self.conv10 = conv(inner, classes, bias=True)

    def forward(self, x):
        x = max_pool2d(relu(self.normed(1, x)), 2)
        for i in range(2, 10):
            x = getattr(self, f'fire{i}')(x)
            if i in (4, 8):
                x = max_pool2d(x, 2)
        return avg_pool2d(self.conv10(x), 4).flatten(1)


class Lenet(nn.Module):
    def __init__(self, image, classes, width):
        super().__init__()
        first, second, third, fourth = (rounded(channels, width) for channels in (6, 16, 120, 84))
        self.conv1, self.conv2 = nn.Conv2d(image[0], first, 5), nn.Conv2d(first, second, 5)
        sides = [((side - 4) // 2 - 4) // 2 for side in image[1:]]
        self.fc1, self.fc2 = nn.Linear(second * sides[0] * sides[1], third), nn.Linear(third, fourth)
        self.fc3 = nn.Linear(fourth, classes)

    def forward(self, x):
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2)
        return self.fc3(relu(self.fc2(relu(self.fc1(x.flatten(1))))))


class Mlp(nn.Module):
    def __init__(self, image, classes, width):
        super().__init__()
        first, second = rounded(256, width), rounded(128, width)
        self.fc1, self.fc2 = nn.Linear(math.prod(image), first), nn.Linear(first, second)
        self.fc3 = nn.Linear(second, classes)

    def forward(self, x):
        return self.fc3(relu(self.fc2(relu(self.fc1(x.flatten(1))))))


def resnet(block, stages, *blocks):
    return lambda *request: Resnet(block, stages, blocks, *request)


SMALL, LARGE = (16, 32, 64), (64, 128, 256, 512)
# With the parameters that `ulp models` counts at width 1 for 10 classes: colour of 32x32, grey for
# lenet and mlp.
NETWORKS = {
    'resnet8': (resnet(BasicBlock, SMALL, 1, 1, 1), 78042),
    'resnet20': (resnet(BasicBlock, SMALL, 3, 3, 3), 272474),
    'resnet32': (resnet(BasicBlock, SMALL, 5, 5, 5), 466906),
    'resnet44': (resnet(BasicBlock, SMALL, 7, 7, 7), 661338),
    'resnet50-cifar': (resnet(BasicBlock, SMALL, 8, 8, 8), 758554),
    'resnet56': (resnet(BasicBlock, SMALL, 9, 9, 9), 855770),
    'resnet18': (resnet(BasicBlock, LARGE, 2, 2, 2, 2), 11173962),
    'resnet34': (resnet(BasicBlock, LARGE, 3, 4, 6, 3), 21282122),
    'resnet50': (resnet(Bottleneck, LARGE, 3, 4, 6, 3), 23520842),
    'mobilenetv2': (Mobilenetv2, 2296922),
    'shufflenetv2': (Shufflenetv2, 1263854),
    'squeezenet': (Squeezenet, 734986),
    'lenet': (Lenet, 61706),
    'mlp': (Mlp, 296586),
}


def make(name, image, classes, width):
    return NETWORKS[name][0](image, classes, width)


def check_parameters():
    for name, (build, parameters) in NETWORKS.items():
        image = (1 if name in ('lenet', 'mlp') else 3, 32, 32)
        count = sum(p.numel() for p in build(image, 10, 1).parameters())
        assert count == parameters, f'{name} has {count} parameters, ulp has {parameters}'
