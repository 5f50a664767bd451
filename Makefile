# make build   install what is missing (Debian packages) and build build/release/ulp
# make install PREFIX=DIR   that, the library and its headers, into a folder
# make test    that, and every test of the quick kind
# make demo    see it work: formats, and a network trained on Fashion-MNIST (a few minutes)
# make slow    the exhaustive tests over all 2^32 floats (ten to fifteen minutes on two cores)
# make page    the tests of ulp report's page, in Chromium, which it installs
# make bench   benchmarks, as ratios measured in one run
# make check   formatting, layering, names, lengths of lines
# make asan | tsan   the tests under sanitizers
# make fuzz    broken and made-up inputs for every parser (ten minutes); fuzz/README.md
# make cuda    compile the device side (needs nvcc)
# make tidy    clang-tidy
# make format  reformat the sources in place

JOBS ?= $(shell nproc)
RELEASE := build/release
# More flags for CMake: make test CMAKE_FLAGS=-DULP_WERROR=ON
CMAKE_FLAGS ?=
# make fuzz FUZZ_FLAGS="--times 100 npy idx"
FUZZ_FLAGS ?=
PACKAGES := tools/install_packages

.PHONY: build all install test demo slow page bench check asan tsan fuzz cuda tidy format packages configure clean

build: configure
	cmake --build --preset release -j $(JOBS) --target ulp

# The program, the tests and the benchmarks.
all: configure
	cmake --build --preset release -j $(JOBS)

configure: packages
	@cmake --preset release $(CMAKE_FLAGS) > build/configure.log 2>&1 || (cat build/configure.log; exit 1)

packages:
	@mkdir -p build
	@$(PACKAGES) tools/packages.txt

PREFIX ?= /usr/local
install: configure
	cmake --build --preset release -j $(JOBS) --target ulp libulp
	cmake --install $(RELEASE) --prefix $(PREFIX)

# Threads that wait spin only briefly: tests run side by side and would take each other's processors.
test: all
	GOMP_SPINCOUNT=2000 ctest --test-dir $(RELEASE) -L quick -j $(JOBS) --output-on-failure

slow: all
	GOMP_SPINCOUNT=2000 ctest --test-dir $(RELEASE) -L slow --output-on-failure --verbose

demo: build
	@$(RELEASE)/ulp demo --report build/demo.html

page: build
	@$(PACKAGES) tools/packages-page.txt
	ULP_REQUIRE_BROWSER=1 tests/report_page_test $(RELEASE)/ulp $(RELEASE)

bench: configure
	cmake --build --preset release -j $(JOBS) --target numeric_bench step_bench precision_bench update_bench ulp
	$(RELEASE)/numeric_bench
	$(RELEASE)/step_bench
	$(RELEASE)/precision_bench
	$(RELEASE)/update_bench
	bench/busy_machine $(RELEASE)/ulp

check: packages
	@$(PACKAGES) tools/packages-check.txt
	@tools/check_format
	@tools/check_layers
	@tools/check_types
	@tools/check_lines
	@tools/check_words
	@echo "formatting, layering, names and lines: fine"

asan tsan: packages
	@cmake --preset $@ $(CMAKE_FLAGS) > build/configure-$@.log 2>&1 || (cat build/configure-$@.log; exit 1)
	cmake --build --preset $@ -j $(JOBS)
	TSAN_OPTIONS="suppressions=$(CURDIR)/tools/tsan.txt" ctest --test-dir build/$@ -L quick --output-on-failure

fuzz: packages
	@$(PACKAGES) tools/packages-fuzz.txt
	@cmake --preset fuzz $(CMAKE_FLAGS) > build/configure-fuzz.log 2>&1 || (cat build/configure-fuzz.log; exit 1)
	cmake --build --preset fuzz -j $(JOBS) --target fuzz
	fuzz/run build/fuzz/fuzz $(FUZZ_FLAGS)

cuda: packages
	@cmake --preset cuda $(CMAKE_FLAGS) > build/configure-cuda.log 2>&1 || (cat build/configure-cuda.log; exit 1)
	cmake --build --preset cuda -j $(JOBS) $(if $(TARGET),--target $(TARGET))

tidy: all
	@$(PACKAGES) tools/packages-check.txt
	find apps bench examples fuzz tests ulp -name '*.cc' | xargs clang-tidy -p $(RELEASE) --quiet

format:
	@$(PACKAGES) tools/packages-check.txt
	tools/check_format --fix

clean:
	rm -rf build
