# Targets:
#   make build   the release binary, target/release/scalla
#   make demo    starts a server, uploads and reads back 1 GiB with the real xrdcp, shows what it did
#   make test    everything that must hold before a change is taken
#   make peers   installs the real programs and the Python client that the tests run against (part of `make test`)

.PHONY: build demo test peers clean-peers

build:
	cargo build --release --package scalla

demo:
	scripts/demo

test: peers
	scripts/test

peers:
	scripts/peers all

clean-peers:
	rm -rf .venv
