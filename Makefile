# Two commands do all set-up on a fresh Debian machine with Rust:
#   make demo   the main job, live, in under two minutes once built
#   make test   formatting, lints, and every test
# Two more want root and apt, and live the README under a real systemd:
#   make test-units      in containers of Debian 13, two minutes once its tree is made
#   make test-units-vm   in a VM with its own kernel and a PS/2 keyboard, six
# Three more break labs, for as long as you like:
#   make simulate   whole labs on a virtual clock, with faults, for MINUTES
#   make soak       a lab of real daemons under real faults, for MINUTES
#   make mutants    bugs planted in a copy of the sources: who notices?
.PHONY: demo test test-units test-units-vm lint check-core bench soak simulate mutants fuzz deny install deps test-deps clean

PACKAGES = gcc libc6-dev make iproute2
# What the packages give: asked first, so that nothing is installed twice.
NEEDED = gcc ip

demo: deps
	cargo build --profile demo --locked -p gleaner-cli
	./target/demo/glean demo

test: deps test-deps lint check-core
	cargo build --workspace --locked
	@rm -f target/skipped
	GLEAN_SKIPPED=$(CURDIR)/target/skipped cargo test --workspace --exclude gleaner-simulation --locked
	cargo test --profile simulate --locked -p gleaner-simulation
	./target/simulate/glean-simulate --hours 10000 --minutes 5 $(CORPUS)
	@[ ! -f target/skipped ] || { echo "$$(wc -l < target/skipped) skipped:"; cat target/skipped; }

test-units test-units-vm: test-units%:
	cargo build --profile demo --locked -p gleaner-cli
	tests/units/$(if $*,vm,test).sh

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

# Nothing under a core/ reaches tokio or quinn (the second promise's proof).
check-core:
	@for core in gleaner-coordinator-core gleaner-agent-core gleaner-collector-core gleaner-program-core gleaner-common; do \
	  for shell in tokio quinn; do \
	    if cargo tree --locked -e normal -p $$core | grep -qw "$$shell"; then \
	      echo "$$core reaches $$shell: a core must not"; exit 1; \
	    fi; \
	  done; \
	  echo "$$core reaches neither tokio nor quinn"; \
	done

# Fresh seeds each time; a failure prints the command that repeats it.
CORPUS = --corpus tests/simulation/corpus.txt
simulate: MINUTES = 5
simulate: deps
	cargo build --profile simulate --locked -p gleaner-simulation
	./target/simulate/glean-simulate --minutes $(MINUTES) $(CORPUS)

bench: deps
	cargo build --release --locked -p gleaner-cli -p glean-bench
	cargo build --release --locked -p gleaner-program --examples
	./target/release/glean-bench all

# Kills, stops, cuts, full disks, owners: what is lost, doubled, wrong or stuck meanwhile?
soak: MINUTES = 10
soak: deps
	cargo build --locked -p gleaner-cli -p gleaner-soak
	./target/debug/glean-soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# Every target for a minute; sanitizers are behind a gate of the compiler's.
SECONDS = 60
TARGETS = $(shell sed -n 's/^    [a-z]*: \([a-z]*\) \(true\|false\),/\1/p' tests/fuzz/src/lib.rs)
fuzz: export RUSTC_BOOTSTRAP = 1
fuzz: export CARGO_PROFILE_RELEASE_LTO = off
fuzz: deps
	@command -v g++ >/dev/null || { echo "missing: g++"; exit 1; }
	@command -v cargo-fuzz >/dev/null || cargo install --locked --quiet cargo-fuzz
	@for target in $(TARGETS); do \
	  echo "$$target"; mkdir -p tests/fuzz/corpus/$$target; \
	  GLEAN_FUZZ=$$target cargo fuzz run --fuzz-dir tests/fuzz --features libfuzzer any \
	    tests/fuzz/corpus/$$target -- -max_total_time=$(SECONDS) -rss_limit_mb=1024 || exit 1; \
	done

# Bugs planted in a copy of the sources: who notices each? An hour, and a quarter more at first.
mutants: deps
	cargo run --locked -q -p gleaner-mutants

# Licences, sources and versions of what we depend on; advisories where they can be had.
deny:
	@command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny
	cargo deny check bans licenses sources
	cargo deny check advisories || echo "advisories were not all looked at"

deps:
	@missing=; for tool in $(NEEDED); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq $(PACKAGES); \
	  else echo "missing:$$missing. As root: apt-get install $(PACKAGES)"; exit 1; fi; \
	fi
	@# Moving guests needs it; all the rest goes without.
	@agent/move/get-criu.sh || echo "guests cannot be moved here, and the tests of it are left out"

# A VNC server for the tests of people who work from elsewhere. Those at sshd, Jupyter,
# mutter and sway are left out, and say so, where these are not installed.
test-deps:
	@command -v Xtigervnc >/dev/null || [ "$$(id -u)" != 0 ] || \
	  apt-get install -y -qq --no-install-recommends tigervnc-standalone-server || true

clean:
	cargo clean
