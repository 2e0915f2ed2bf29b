"""Names of files in graphs are short, and still distinguish the files."""

from __future__ import annotations

from dynamo_dap.protocol.texts import short_paths


def test_a_name_alone_where_it_is_the_only_one() -> None:
    assert short_paths(["/a/b/model.py", "/a/b/train.py", "/a/b/model.py"]) == {
        "/a/b/model.py": "model.py",
        "/a/b/train.py": "train.py",
    }


def test_as_many_folders_as_distinguish_them() -> None:
    paths = ["/x/llama/model.py", "/x/bert/model.py", "/y/bert/model.py"]
    assert list(short_paths(paths).values()) == ["llama/model.py", "x/bert/model.py", "y/bert/model.py"]


def test_a_path_that_ends_another() -> None:
    assert short_paths(["model.py", "/a/model.py"]) == {"model.py": "model.py", "/a/model.py": "a/model.py"}
