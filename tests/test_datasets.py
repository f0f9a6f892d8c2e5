import importlib.resources

from minitorch_attn.datasets import tang_poems


def test_tang_poems_are_four_regular_quatrains():
    poems = tang_poems()
    assert len(poems) == 96 and len(set(poems)) == 73
    for i in range(0, 96, 6):  # five characters and a mark
        assert poems[i + 5] == "，。"[i // 6 % 2] and not set(poems[i:i + 5]) & set("，。")
    assert poems.startswith("床前明月光，疑是地上霜。") and poems.endswith("愿君多采撷，此物最相思。")


def test_the_data_says_where_it_comes_from():
    readme = (importlib.resources.files("minitorch_attn.datasets") / "README.md").read_text(encoding="utf-8")
    assert "Public domain" in readme and "tang_poems.txt" in readme
