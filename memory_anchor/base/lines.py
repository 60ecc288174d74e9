r"""Lines of text from outside: `\n` alone ends one, as nothing else in the tree does (a test walks the source).

`str.splitlines` also ends them at U+2028, U+2029, U+0085, form feeds and six more characters, text files at `\r`: a
transcript loses messages, the lines of a note move.
"""


def text_lines(text: str, *, ends: bool = False) -> list[str]:
    r"""Return the lines of a text without `\n` or `\r\n`; as they are with `ends`.

    >>> text_lines("a\r\nb\u2028c\n"), text_lines("a\nb", ends=True), text_lines("")
    (['a', 'b\u2028c'], ['a\n', 'b'], [])
    """
    *whole, last = text.split("\n")
    rest = [last] if last else []
    return [f"{line}\n" for line in whole] + rest if ends else [line.removesuffix("\r") for line in whole + rest]
