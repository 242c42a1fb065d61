"""The benchmarks still run, at toy size; what they measure is for those who run them."""

from scipy import sparse

from tests.benchmarks import codec, penalty
from tests.helpers import planted_graph
from tests.oracle import normalized


def test_every_codec_has_its_line(monkeypatch, capsys, graph):
    monkeypatch.setattr(codec, "TIMES", 1)
    monkeypatch.setattr("sys.argv", ["codec", graph.path])
    codec.main()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| indices |") for line in lines) == len(codec.CODECS)


def test_every_penalty_rule_has_its_line(monkeypatch, capsys):
    for name, value in {"K": 3, "SEEDS": 2, "CAP": 30}.items():
        monkeypatch.setattr(penalty, name, value)
    penalty.compare("toy", sparse.csr_matrix(normalized(planted_graph()[0].toarray())))
    lines = capsys.readouterr().out.splitlines()
    assert [line[:24].strip() for line in lines[3:]] == list(penalty.RULES)
    assert all(float(line.split()[-2]) > 0 for line in lines[3:])  # c, a share of the bound
