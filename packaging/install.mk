# The ways to install, all of them in docs/install.md. Included by the Makefile.

.PHONY: install uninstall stage wheel wheel-portable deb test-install

PREFIX ?= /usr/local
DESTDIR ?=

install: product
	packaging/tree.sh install $(RELEASE) "$(PREFIX)" "$(DESTDIR)"

uninstall:
	packaging/tree.sh uninstall $(RELEASE) "$(PREFIX)" "$(DESTDIR)"

# What all packages are made of: the tree of `make install PREFIX=/usr`.
stage: product
	rm -rf $(TARGET_FOLDER)/stage
	packaging/tree.sh install $(RELEASE) /usr $(TARGET_FOLDER)/stage

# For machines with the glibc of this one, or what its command needs of it; the
# name of the wheel says.
wheel: stage
	$(PYTHON) python/backend/memcuda_wheel.py $(TARGET_FOLDER)/stage $(TARGET_FOLDER)/wheels

# For all machines since glibc 2.23: linked against that glibc, which apt-get
# fetches. Builds everything once more, beside the usual build.
SYSROOT := $(CURDIR)/target/compat/sysroot
SYSROOT_LIBRARIES := $(SYSROOT)/usr/lib/x86_64-linux-gnu
AGAINST_SYSROOT := --sysroot=$(SYSROOT) -B$(SYSROOT_LIBRARIES) -L$(SYSROOT_LIBRARIES) -L$(SYSROOT)/lib/x86_64-linux-gnu
wheel-portable: one-word
	$(PYTHON) packaging/sysroot.py $(SYSROOT)
	HOST_CFLAGS="--sysroot=$(SYSROOT)" RUSTFLAGS="$(addprefix -C link-arg=,$(AGAINST_SYSROOT))" \
		$(MAKE) wheel TARGET_FOLDER=target/portable

# By cargo-deb, which cargo builds into target/tools at the first time.
CARGO_DEB := target/tools/bin/cargo-deb
deb: stage $(CARGO_DEB)
	rm -f target/debian/*.deb
	$(CARGO_DEB) -p memcuda --no-build --no-strip --output target/debian

$(CARGO_DEB):
	$(CARGO) install cargo-deb --version 3.8.0 --locked --debug --root target/tools --target-dir target/tools/build
	rm -rf target/tools/build

# What checks manifests of Kubernetes against its own schemas (pip, 3.5 MB).
KUBERNETES_VALIDATE := target/tools/python/bin/kubernetes-validate
$(KUBERNETES_VALIDATE):
	$(PYTHON) -m venv target/tools/python
	target/tools/python/bin/pip install -q kubernetes-validate==1.37.0

# Every way to install, done in scratch directories and run over the simulated
# GPU; the recipes, the manifests, and the commands of docs/install.md. `make test`
# leaves it out, since it needs a release build and fetches the two tools above.
test-install: build wheel deb $(KUBERNETES_VALIDATE)
	PROFILE=$(PROFILE) $(PYTHON) -B -m unittest discover --verbose -s tests/install
