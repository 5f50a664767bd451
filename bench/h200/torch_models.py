"""The CIFAR networks of ulp/models in PyTorch, layer for layer: same shapes, same parameters, for measurements side
by side."""

import torch
from torch import nn


def conv_bn(inner, out, kernel=1, stride=1, groups=1):
    return [nn.Conv2d(inner, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]


class BasicBlock(nn.Module):
    """conv 3x3 - BN - ReLU - conv 3x3 - BN, plus the shortcut, ReLU."""

    def __init__(self, inner, out, stride):
        super().__init__()
        self.body = nn.Sequential(*conv_bn(inner, out, 3, stride), nn.ReLU(inplace=True), *conv_bn(out, out, 3))
        same = stride == 1 and inner == out
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv_bn(inner, out, 1, stride))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def residual(planes, blocks):
    layers, inner = [*conv_bn(3, planes[0], 3), nn.ReLU(inplace=True)], planes[0]
    for stage, (out, count) in enumerate(zip(planes, blocks)):
        for i in range(count):
            layers.append(BasicBlock(inner, out, 2 if stage > 0 and i == 0 else 1))
            inner = out
    return layers


def resnet18():
    return nn.Sequential(*residual([64, 128, 256, 512], [2, 2, 2, 2]), nn.AvgPool2d(4), nn.Flatten(),
                         nn.Linear(512, 10))


def resnet20():
    return nn.Sequential(*residual([16, 32, 64], [3, 3, 3]), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class InvertedResidual(nn.Module):
    """1x1 - BN - ReLU - depthwise 3x3 - BN - ReLU - 1x1 - BN; plus the shortcut where the size stays."""

    def __init__(self, inner, out, expansion, stride):
        super().__init__()
        wide = expansion * inner
        self.body = nn.Sequential(*conv_bn(inner, wide), nn.ReLU(inplace=True),
                                  *conv_bn(wide, wide, 3, stride, groups=wide), nn.ReLU(inplace=True),
                                  *conv_bn(wide, out))
        self.adds = stride == 1
        self.shortcut = nn.Sequential(*conv_bn(inner, out)) if self.adds and inner != out else nn.Identity()

    def forward(self, x):
        y = self.body(x)
        return y + self.shortcut(x) if self.adds else y


def mobilenetv2():
    rows = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    layers, inner = [*conv_bn(3, 32, 3), nn.ReLU(inplace=True)], 32
    for expansion, out, blocks, stride in rows:
        for i in range(blocks):
            layers.append(InvertedResidual(inner, out, expansion, stride if i == 0 else 1))
            inner = out
    return nn.Sequential(*layers, *conv_bn(320, 1280), nn.ReLU(inplace=True), nn.AvgPool2d(4), nn.Flatten(),
                         nn.Linear(1280, 10))


def shuffled(left, right):
    x = torch.cat([left, right], 1)
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleBlock(nn.Module):
    """One half passes; the other: 1x1 - BN - ReLU - depthwise 3x3 - BN - 1x1 - BN - ReLU."""

    def __init__(self, channels):
        super().__init__()
        c = channels // 2
        self.body = nn.Sequential(*conv_bn(c, c), nn.ReLU(inplace=True), *conv_bn(c, c, 3, groups=c), *conv_bn(c, c),
                                  nn.ReLU(inplace=True))

    def forward(self, x):
        left, right = x.chunk(2, 1)
        return shuffled(left, self.body(right))


class ShuffleDown(nn.Module):
    def __init__(self, inner, out):
        super().__init__()
        c = out // 2
        self.left = nn.Sequential(*conv_bn(inner, inner, 3, 2, groups=inner), *conv_bn(inner, c), nn.ReLU(inplace=True))
        self.right = nn.Sequential(*conv_bn(inner, c), nn.ReLU(inplace=True), *conv_bn(c, c, 3, 2, groups=c),
                                   *conv_bn(c, c), nn.ReLU(inplace=True))

    def forward(self, x):
        return shuffled(self.left(x), self.right(x))


def shufflenetv2():
    layers, inner = [*conv_bn(3, 24, 3), nn.ReLU(inplace=True)], 24
    for out, basic in [(116, 3), (232, 7), (464, 3)]:
        layers += [ShuffleDown(inner, out), *(ShuffleBlock(out) for _ in range(basic))]
        inner = out
    return nn.Sequential(*layers, *conv_bn(464, 1024), nn.ReLU(inplace=True), nn.AvgPool2d(4), nn.Flatten(),
                         nn.Linear(1024, 10))


# With the parameters that `ulp models` counts at width 1, 3x32x32, 10 classes.
MODELS = {
    'resnet18': (resnet18, 11173962),
    'resnet20': (resnet20, 272474),
    'mobilenetv2': (mobilenetv2, 2296922),
    'shufflenetv2': (shufflenetv2, 1263854),
}


def make(name):
    """The network, Kaiming-initialised as in ulp; its parameters are counted."""
    build, parameters = MODELS[name]
    model = build()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode='fan_out', nonlinearity='relu')
    count = sum(p.numel() for p in model.parameters())
    assert count == parameters, f'{name} has {count} parameters, ulp has {parameters}'
    return model
