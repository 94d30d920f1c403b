# demo · test · bench · soak · lint · install. Each sets up what it needs.
#
#   make demo                    the main job, end to end, with real programs
#   make demo ARGS=--json        the same as one JSON document; ARGS=--keep leaves it running
#   make test                    everything that is tested
#   make bench B=switch          one benchmark: a table, and a last line with the ratio
#   make soak                    what takes long, and every property with numbers that are drawn anew
#   make loom                    models of what threads share
#   make lint                    format, clippy, documentation, tidy
#   make install                 programs, manual pages, completions and a systemd unit below PREFIX (/usr/local) of DESTDIR

CARGO ?= cargo
ARGS  ?=
B     ?=
PREFIX ?= /usr/local
# Where cargo puts what it builds.
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)

.PHONY: demo test bench soak loom lint install

demo:
	@$(CARGO) xtask setup demo
	@$(CARGO) build --quiet --release --package firelane-cli --package firelane-daemon
	@$(TARGET)/release/firelane demo $(ARGS)

# Tests wait for programs, clocks and peers more than they compute.
test: export RUST_TEST_THREADS ?= $(shell echo $$((6 * $$(nproc))))
# Tests that cannot run on this machine pass, and cargo hides what they print: each adds a line to this file.
test: export FIRELANE_SKIPPED := $(TARGET)/skipped
# The programs that tests start are built with all else: built by themselves, cargo would choose other features of what they are made of, and
# build most of it twice.
test: export FIRELANE_PROGRAMS := $(TARGET)/debug
test:
	@$(CARGO) xtask setup test
	@$(CARGO) build --workspace --all-targets
	@mkdir -p "$(dir $(FIRELANE_SKIPPED))" && rm -f "$(FIRELANE_SKIPPED)"
	@$(CARGO) test --workspace; code=$$?; \
		if [ -s "$(FIRELANE_SKIPPED)" ]; then echo "skipped:"; sort -u "$(FIRELANE_SKIPPED)"; \
		else echo "nothing was skipped"; fi; exit $$code

loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --profile soak --target-dir $(TARGET)/loom --package firelane-frame --package firelane-lane --package firelane-shm --lib model

bench:
	@test -n "$(B)" || { echo "usage: make bench B=switch|lanes-scale|neighbours|limit|isolation|polling|computing|tap-bulk|wire-tcp|conn-rate|memif|afxdp|loss|idle|conn-memory|growth|udp|forward|forward-veth|filter|attack-cost|shim-rtt|shim-memory|redis-tap|nginx-close|sendfile|run-start|fused-rtt|fused-bulk|fused-redis|fused-java|fused-conn|fused-pgbench|fused-nginx-close" >&2; exit 2; }
	@$(CARGO) xtask setup bench
	@$(CARGO) build --quiet --release --package firelane-bench --package firelane-cli --package firelane-daemon --package firelane-shim
	@$(TARGET)/release/firelane-bench $(B)

soak: PROPTEST_RNG_SEED := $(or $(PROPTEST_RNG_SEED),$(shell date +%s))
soak:
	@echo PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED)
	PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED) $(CARGO) test --profile soak --workspace --exclude firelane-interop --lib --tests
	PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED) $(CARGO) test --profile soak --workspace -- --ignored soak

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --document-private-items
	$(CARGO) xtask tidy

COMMANDS := acctadm dladm flowadm ipadm ipf ipfstat ipnat ippool dlstat flowstat connstat
# The host has commands of these names, which are about the kernel: ours lie apart, for who puts them in front of those himself.
APART := route netstat

install:
	$(CARGO) build --release --package firelane-cli --package firelane-daemon --package firelane-shim
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib $(TARGET)/release/libfirelane_preload.so
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/release/firelane $(TARGET)/release/firelaned
	for name in $(COMMANDS); do ln -sf firelane $(DESTDIR)$(PREFIX)/bin/$$name; done
	mkdir -p $(DESTDIR)$(PREFIX)/lib/firelane/bin
	for name in $(APART); do \
		ln -sf ../../../bin/firelane $(DESTDIR)$(PREFIX)/lib/firelane/bin/$$name; done
	for name in firelane $(COMMANDS); do \
		for shell in bash:bash-completion/completions/$$name zsh:zsh/site-functions/_$$name fish:fish/vendor_completions.d/$$name.fish; do \
			file=$(DESTDIR)$(PREFIX)/share/$${shell#*:}; mkdir -p $${file%/*}; \
			$(TARGET)/release/firelane completion $${shell%%:*} $${name#firelane} > $$file; done; done
	$(CARGO) xtask man $(DESTDIR)$(PREFIX)/share/man
	mkdir -p $(DESTDIR)$(PREFIX)/lib/firelane/man/man8
	for name in $(APART); do \
		mv $(DESTDIR)$(PREFIX)/share/man/man8/$$name.8 $(DESTDIR)$(PREFIX)/lib/firelane/man/man8; done
	mkdir -p $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's,@PREFIX@,$(PREFIX),' control/daemon/firelaned.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/firelaned.service
