# Targets:
#   make build   the binary for a site, target/dist/scalla, with whole-program optimization (ten minutes more than a release build)
#   make demo    starts a manager and three servers, spreads files, kills one in the middle of a read with the real xrdcp
#   make demo-cache  starts a cache in front of an origin, reads cold and warm, damages a cached block, pins and removes files
#   make test    everything that must hold before a change is taken
#   make bench   our server against the real xrootd, load by load; BENCH="--quick --only read" passes options, BENCH=--write-docs
#                puts the last results into docs/performance.md
#   make fuzz    every fuzz target, for FUZZ_MINUTES in all (125: on two cores ten minutes for each)
#   make abuse   hostile clients of all kinds against the release binary, beside a well-behaved one; ABUSE="--quick" or names of
#                campaigns choose among them
#   make soak    a cluster under real clients and ours, its nodes killed one after the other, for SOAK_MINUTES (30), its memory and
#                latency under what clients and strangers can cause, and
#                QUESTIONS (100000) about random authorization rules to the real xrdacctest and to ours, and CHAINS (5000)
#                random chains of grid certificates to openssl and to ours, and the interop tests that take long
#   make differ  10,000 random request sequences to the real xrootd and to ours, or SEQUENCES of them
#   make histories   random cp, sync and rm against our server and the real one, with lost messages and killed clients and servers:
#                20,000 histories and 500, or HISTORIES and HISTORIES_THEIRS of them
#   make sim     trees of up to 65,536 nodes form on virtual time, then SEEDS (10000) bad minutes
#                with faults of all kinds, and as many times ten new files of each kind of trouble
#                and as many histories of locations that end, orders of strangers, crowds and work queues
#   make peers   installs the real programs and the Python client that the tests run against (part of `make test`)
#   make peers-6 builds servers and clients of XRootD 6 below SCALLA_PEERS_6 (/var/tmp/scalla-peers-6), which takes 15 to 60 minutes
#   make test-6  the tests of authentication, third-party copies, clusters and proxies against these programs instead of 5.5.3;
#                TESTS_6="test_gsi.py" chooses among them

FUZZ_MINUTES ?= 125
SEEDS ?= 10000
SOAK_MINUTES ?= 30
SEQUENCES ?= 10000
QUESTIONS ?= 100000
CHAINS ?= 5000
HISTORIES ?= 20000
HISTORIES_THEIRS ?= 500
SCALLA_PEERS_6 ?= /var/tmp/scalla-peers-6
TESTS_6 ?= test_third_party*.py test_delegated_copies.py test_gsi.py test_voms.py test_auth_client.py test_auth_server.py \
	test_auth_keytabs.py test_signed_data.py test_ztn.py test_tokens.py test_macaroons.py test_krb5.py test_pwd.py test_tls.py \
	test_cluster_key.py test_proxy.py test_cache.py test_cache_commands.py

.PHONY: build demo demo-cache test test-6 bench differ fuzz abuse soak histories sim peers peers-6 clean-peers

build:
	cargo build --profile dist --package scalla

demo:
	scripts/demo

demo-cache:
	scripts/demo-cache

test: peers
	scripts/test

test-6: peers-6
	cargo build --package scalla
	cd checks/interop && SCALLA_PEERS=$(SCALLA_PEERS_6) SCALLA=$(abspath $(or $(CARGO_TARGET_DIR),target))/debug/scalla \
		$(CURDIR)/.venv/bin/pytest -v -n 10 --dist loadgroup $(TESTS_6)

fuzz:
	checks/fuzz/run $(FUZZ_MINUTES)

abuse:
	cargo build --release --package scalla --package abuse
	$${CARGO_TARGET_DIR:-target}/release/abuse --server $${CARGO_TARGET_DIR:-target}/release/scalla $(ABUSE)

soak: peers
	cargo build --release --package scalla --package abuse
	$${CARGO_TARGET_DIR:-target}/release/abuse --server $${CARGO_TARGET_DIR:-target}/release/scalla --quick --times 5
	SCALLA=$${CARGO_TARGET_DIR:-target}/release/scalla .venv/bin/python checks/interop/soak.py $(SOAK_MINUTES)
	SCALLA=$${CARGO_TARGET_DIR:-target}/release/scalla .venv/bin/python checks/interop/authdb.py $(QUESTIONS)
	GRID_CHAINS=$(CHAINS) cargo test --package scalla-auth openssl_has_the_same_verdict
	SCALLA=$${CARGO_TARGET_DIR:-target}/release/scalla .venv/bin/python checks/interop/pressure.py
	SCALLA=$${CARGO_TARGET_DIR:-target}/release/scalla SCALLA_PLACEMENTS=200 \
		.venv/bin/pytest -q checks/interop/test_cluster_placement.py
	SCALLA=$${CARGO_TARGET_DIR:-target}/release/scalla .venv/bin/pytest -q -m soak checks/interop

histories: peers
	cargo build --release --package scalla
	SCALLA=$${CARGO_TARGET_DIR:-target}/release/scalla .venv/bin/python checks/interop/histories.py $(HISTORIES) 1 ours
	SCALLA=$${CARGO_TARGET_DIR:-target}/release/scalla .venv/bin/python checks/interop/histories.py $(HISTORIES_THEIRS) 1 theirs

differ: peers
	cargo build --release --package scalla
	SCALLA=$${CARGO_TARGET_DIR:-target}/release/scalla .venv/bin/python checks/interop/differ.py $(SEQUENCES)

sim:
	cargo build --release --package sim
	$${CARGO_TARGET_DIR:-target}/release/sim $(SEEDS)

bench:
	scripts/peers bench
	cargo build --profile dist --package scalla --package bench
	$${CARGO_TARGET_DIR:-target}/dist/bench $(BENCH)

peers:
	scripts/peers all

peers-6:
	SCALLA_PEERS_6=$(SCALLA_PEERS_6) scripts/peers six

clean-peers:
	rm -rf .venv
