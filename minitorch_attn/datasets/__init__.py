"""Small data that comes with the package; README.md beside this file says where each comes from."""
import importlib.resources

__all__ = ["tang_poems"]


def tang_poems():
    """Four Tang poems as one string of 96 characters, each poem four lines of five with their punctuation.

    Public domain: Li Bai, Meng Haoran, Wang Zhihuan and Wang Wei, all of the eighth century.
    """
    file = importlib.resources.files(__name__) / "tang_poems.txt"
    return "".join(file.read_text(encoding="utf-8").split())
