"""Every recorded question about rules and tokens, asked by `scalla auth check`."""

import json
import time

import peers
import pytest
from issuers import Issuer
from tools import scalla

VECTORS = peers.REPOSITORY / "vectors" / "security"


def vector(name):
    return json.loads((VECTORS / f"{name}.json").read_text())


def check(config, user, path, operation, **entity):
    """Returns the answer as JSON, or `None` if there is none."""
    options = [word for name, value in entity.items() for word in (f"--{name}", value)]
    done = scalla("auth", "check", user, path, operation, "--config", config, "--json", *options)
    assert done.status in (0, 1), done
    answer = json.loads(done.out) if done.out else None
    assert answer is None or answer["allowed"] == (done.status == 0), done
    return answer


def entity_options(entity):
    """Returns user and options of a recorded entity."""
    names = {"host": "host", "grps": "groups", "vorg": "vo", "role": "roles"}
    assert set(entity) <= {"name", *names}, entity
    return entity.get("name") or "*", {names[key]: value for key, value in entity.items() if key != "name"}


def rules(directory, text):
    (directory / "authdb").write_text(text)
    config = directory / "site.cf"
    config.write_text(f"ofs.authorize\nacc.authdb {directory}/authdb\n")
    return config


def test_every_recorded_question_about_rules(tmp_path):
    recorded = vector("authdb")
    config = rules(tmp_path, recorded["authdb"])
    for case in recorded["cases"]:
        user, options = entity_options(case["entity"])
        answer = check(config, user, case["path"], case.get("operation", "any"), **options)
        if "operation" in case:
            assert answer["allowed"] == (case["answer"] == "allowed"), (case, answer)
            continue
        assert set(answer["privileges"]) == set(case["privileges"]), (case, answer)
        # The rules that are named grant what the answer has.
        granted = set("".join(rule["grants"] for rule in answer["rules"]))
        assert set(case["privileges"]) <= granted, (case, answer)


def test_every_recorded_operation(tmp_path):
    recorded = vector("authdb")
    config = rules(tmp_path, recorded["operations_authdb"])
    for case in recorded["operation_cases"]:
        user, options = entity_options(case["entity"])
        answer = check(config, user, case["path"], case["operation"], **options)
        assert answer["allowed"] == (case["answer"] == "allowed"), (case, answer)


# The recorded operations: an operation of `auth check`, and its path.
OPERATIONS = {
    "stat /protected/f": ("stat", "/protected/f"),
    "read f": ("read", "/protected/f"),
    "read sub/g": ("read", "/protected/sub/g"),
    "read protectedX/x": ("read", "/protectedX/x"),
    "read public/p": ("read", "/public/p"),
    "create new": ("create", "/protected/new"),
    "update f": ("update", "/protected/f"),
    "mkdir": ("mkdir", "/protected/directory"),
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """A configuration with the recorded issuer, and a function that issues the recorded tokens."""
    recorded, directory = vector("scitokens"), tmp_path_factory.mktemp("tokens")
    defaults = recorded["default_claims"]
    issuer = Issuer(directory, url=defaults["iss"])
    (directory / "keys").write_text(json.dumps(issuer.keys))
    (directory / "issuers").write_text(f"{recorded['scitokens_cfg']}jwks_file = {directory}/keys\n")
    config = rules(directory, recorded["authdb"])
    config.write_text(f"{config.read_text()}ofs.authlib ++ libXrdAccSciTokens.so config={directory}/issuers\n")

    def issue(changed):
        changed = dict(changed)
        if "token" in changed:
            return changed["token"]
        header = {"alg": changed.pop("alg")} if "alg" in changed else None
        is_damaged = changed.pop("signature", None) is not None
        claims = {name: at_time(value) for name, value in {**defaults, **changed}.items()}
        token = issuer.token(header, **claims)
        return token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB") if is_damaged else token

    return config, recorded["cases"], issue


def at_time(value):
    """Returns the value of a claim: `now-10` is a time."""
    is_time = isinstance(value, str) and value.startswith("now")
    return int(time.time()) + int(value[3:]) if is_time else value


def test_every_recorded_token(tokens):
    config, cases, issue = tokens
    for case in cases:
        token = issue(case["claims_changed"])
        if case["auth"] != "ok":
            answer = check(config, token, "/protected/f", "read")
            assert answer is None or not answer["allowed"], (case, answer)
            continue
        for name, expected in case["ops"].items():
            operation, path = OPERATIONS[name]
            answer = check(config, token, path, operation)
            assert answer["allowed"] == (expected == "allowed"), (case["case"], name, answer)
