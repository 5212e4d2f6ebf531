"""A strict parser of the text formats of metrics: Prometheus 0.0.4 and OpenMetrics 1.0.

It accepts what our server may write, and nothing that a collector could understand otherwise."""

import re

TYPES = {
    "text/plain; version=0.0.4; charset=utf-8": False,
    "application/openmetrics-text; version=1.0.0; charset=utf-8": True,
}
SUFFIXES = {"counter": "_total", "gauge": "", "info": "_info"}
# Suffixes of the samples of a histogram, in both formats.
PARTS = ("_bucket", "_sum", "_count")
UNITS = ("bytes", "seconds")
NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{({NAME}=\"(?:[^\"\\\n]|\\[\\\"n])*\"(?:,{NAME}=\"(?:[^\"\\\n]|\\[\\\"n])*\")*)\}})? (\d+(?:\.\d+)?)")
LABEL = re.compile(rf"({NAME})=\"((?:[^\"\\\n]|\\[\\\"n])*)\"")


class Family:
    def __init__(self, name, help):
        self.name, self.help, self.kind, self.unit = name, help, None, None
        self.samples = {}


class Metrics:
    """Metrics by name of the sample and labels."""

    def __init__(self, families):
        self.families = families
        self.samples = {(name, labels): value for family in families.values() for (name, labels), value in family.samples.items()}

    def __getitem__(self, name):
        """The value of a sample: `name` or `name{label="value"}`."""
        name, _, labels = name.partition("{")
        wanted = frozenset(LABEL.findall(labels))
        return self.samples[name, wanted]

    def named(self, name):
        return {labels: value for (of, labels), value in self.samples.items() if of == name}

    def names(self):
        return {name for name, _ in self.samples}


def parse(text, is_open_metrics):
    """Returns the metrics of a text; raises an error with the line that is wrong."""
    assert text.endswith("\n") and "\r" not in text
    lines = text[:-1].split("\n")
    if is_open_metrics:
        assert lines.pop() == "# EOF"
    families, family, series = {}, None, set()
    for line in lines:
        assert line and line == line.strip(), repr(line)
        if line.startswith("# HELP "):
            assert family is None or family.samples, f"no samples: {family.name}"
            name, help = re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line).groups()
            assert name not in families and "\\" not in help and '"' not in help, line
            family = families[name] = Family(name, help)
        elif line.startswith("# TYPE "):
            name, kind = re.fullmatch(rf"# TYPE ({NAME}) (\w+)", line).groups()
            assert name == family.name and family.kind is None and not family.samples, line
            assert kind in (("counter", "gauge", "histogram", "info") if is_open_metrics else ("counter", "gauge", "histogram")), line
            family.kind = kind
            assert is_open_metrics or name.endswith("_total") == (kind == "counter"), line
            assert not is_open_metrics or not name.endswith(("_total", "_info")), line
        elif line.startswith("# UNIT "):
            name, unit = re.fullmatch(rf"# UNIT ({NAME}) (\w+)", line).groups()
            assert is_open_metrics and name == family.name and name.endswith("_" + unit) and family.kind and not family.samples, line
            family.unit = unit
        else:
            found = SAMPLE.fullmatch(line)
            assert found, f"malformed: {line}"
            name, labels, value = found.groups()
            pairs = LABEL.findall(labels or "")
            if family.kind == "histogram":
                assert name in {family.name + part for part in PARTS}, line
                assert name.endswith("_bucket") == any(label == "le" for label, _ in pairs), line
            else:
                assert name == family.name + (SUFFIXES[family.kind] if is_open_metrics else ""), line
            assert len({key for key, _ in pairs}) == len(pairs), line
            key = (name, frozenset(pairs))
            assert key not in series, f"twice: {line}"
            series.add(key)
            family.samples[key] = float(value) if "." in value else int(value)
            # One set of names of labels in a family.
            assert {label for label, _ in pairs} - {"le"} == {label for label, _ in next(iter(family.samples))[1]} - {"le"}, line
    for family in families.values():
        assert family.kind and family.samples, family.name
        if family.kind == "histogram":
            check_histograms(family)
        if is_open_metrics:
            assert (family.unit is not None) == family.name.endswith(tuple("_" + unit for unit in UNITS)), family.name
    return Metrics(families)


def check_histograms(family):
    """The buckets of each histogram end with +Inf, grow with their bounds, and have its number of times."""
    found = {}
    for (name, labels), value in family.samples.items():
        bounds = [value for label, value in labels if label == "le"]
        one = found.setdefault(frozenset(pair for pair in labels if pair[0] != "le"), {"buckets": []})
        if bounds:
            # OpenMetrics requires a point in numbers other than +Inf.
            assert bounds[0] == "+Inf" or re.fullmatch(r"\d+\.\d+", bounds[0]), bounds
            one["buckets"].append((float(bounds[0]), value))
        else:
            one[name.removeprefix(family.name)] = value
    for labels, one in found.items():
        bounds, counts = zip(*one["buckets"])
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == float("inf"), labels
        assert list(counts) == sorted(counts) and counts[-1] == one["_count"] and one["_sum"] >= 0, labels


def queried(expression):
    """The names of metrics in a query of Prometheus."""
    # Values and names of labels, and their lists behind `by`, are no metrics.
    text = re.sub(r'"[^"]*"', '""', expression)
    text = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    text = re.sub(r"\{[^}]*\}", " ", text)
    return {name for name in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", text) if re.match(r"(scalla|xrootd|process)_", name)}
