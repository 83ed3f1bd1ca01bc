"""Tokens as people can read them: what a screen would hide, move or turn round is spelled out."""

import unicodedata

SPACE, NEWLINE, NOTHING = "\N{OPEN BOX}", "\N{RETURN SYMBOL}", "\N{EMPTY SET}"


def shown(text: str) -> str:
    """A token with its blanks, controls and marks made visible."""
    alone = "\N{DOTTED CIRCLE}" if text and unicodedata.combining(text[0]) else ""  # a mark would sit on its neighbour
    return alone + "".join(map(_shown, text)) or NOTHING


def _shown(character: str) -> str:
    if character in " \n":
        return SPACE if character == " " else NEWLINE
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))  # a picture of it
    if character.isprintable():
        return character
    # marks of direction, joiners, lone surrogates, blanks of other widths
    return f"\N{MATHEMATICAL LEFT ANGLE BRACKET}{ord(character):04X}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"
