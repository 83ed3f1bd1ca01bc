"""What a page shows of a record, as plain values for its script: small enough to send, rounded as one reads it."""

import base64
import math
import unicodedata
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sympformer.watching.physics import rms
from sympformer.watching.record import ALIKE, Record

DIRECTIONS = 16  # principal directions that are kept; every projection of the page is one of these
MOST_TOKENS = 400  # on a page
GUESSES = 5
SPACE, NEWLINE, NOTHING = "\N{OPEN BOX}", "\N{RETURN SYMBOL}", "\N{EMPTY SET}"
MOST_LINES, FAINTEST = 12, 0.01  # of an attention row: so many shares, none smaller

# quantity -> its title on the page, in its order; those by stage first
BY_STAGE = {
    "size_x": "size of positions x (root mean square)",
    "size_y": "size of momenta y (root mean square)",
    "rank": "effective rank of the tokens",
    "clusters": f"clusters of tokens (cosine of at least {ALIKE:g})",
}
BY_LAYER = {
    "kinetic": "kinetic energy of a token",
    "potential": "potential energy of a token",
    "cosine": "cosine of momentum and force",
    "z": "row normaliser z",
}
SCALARS = {
    "h_x": "step of positions h_x",
    "h_y": "step of momenta h_y",
    "alpha": "damping rate \N{GREEK SMALL LETTER ALPHA}(t)",
    "factor": "momentum factor a",
    "beta_mlp": "momentum factor \N{GREEK SMALL LETTER BETA} of the MLP",
    "gamma_mlp": "gain \N{GREEK SMALL LETTER GAMMA} of the MLP",
    "beta_attention": "momentum factor \N{GREEK SMALL LETTER BETA} of attention",
    "gamma_attention": "gain \N{GREEK SMALL LETTER GAMMA} of attention",
}


@dataclass(frozen=True)
class Subject:
    """A model on the page: its name, its colour (a family's key), the record of one text, and how its tokens read."""

    name: str
    family: str
    record: Record
    words: dict[int, str]  # token id -> text, of the text and of the guesses
    note: str = ""


def scene(subject: Subject) -> dict[str, Any]:
    """The values of one model."""
    seen = subject.record
    first = max(0, seen.idx.shape[1] - MOST_TOKENS)
    x, y = seen.x[:, 0], None if seen.y is None else seen.y[:, 0]
    basis, centre, shares = principal(x)
    layers = [stage.layer for stage in seen.stages]
    return {
        "name": subject.name,
        "family": subject.family,
        "stages": [stage.name for stage in seen.stages],
        "halves": [stage.half for stage in seen.stages],
        "layers": layers,
        "starts": [max(s for s, layer in enumerate(layers) if layer < k) for k in range(1, layers[-1] + 1)],
        "first": first,
        "tokens": [subject.words[i] for i in seen.idx[0, first:].tolist()],
        "directions": basis.shape[1],
        "shares": rounded(shares),
        "axes": [rounded(own_axes(s)) for s in (x - centre) @ basis],
        "x": packed((x[:, first:] - centre) @ basis),
        "y": None if y is None else packed(y[:, first:] @ basis),
        "figures": _figures(seen, first),
        "attention": _attention(seen, first),
        "lens": _lens(subject, first),
        "curves": curves(seen),
        "hamiltonian": seen.physics.hamiltonian,
    }


# --- axes


def principal(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of states (S, T, d): the principal directions as columns (d, K), the centre (d,), each direction's variance."""
    rows = x.flatten(0, 1).double()
    centre = rows.mean(0)
    values, vectors = torch.linalg.eigh((rows - centre).mT @ (rows - centre))
    K = min(DIRECTIONS, len(values))
    total = values.clamp_min(0).sum()
    shares = values.clamp_min(0).flip(0)[:K] / total if total > 0 else torch.zeros(K)
    return vectors.flip(1)[:, :K].to(x), centre.to(x), shares


def own_axes(x: Tensor) -> Tensor:
    """The two principal axes of one stage's tokens (T, K), as rows (2, K)."""
    directions = principal(x.unsqueeze(0))[0].mT
    return torch.cat([directions, directions.new_zeros(2, directions.shape[1])])[:2]


def packed(x: Tensor) -> dict[str, Any]:
    """Numbers as 16-bit integers in base64, with the unit that makes numbers of them again."""
    unit = max(float(x.abs().max()), 1e-30) / 32767
    integers = (x.double() / unit).round().to(torch.int16).contiguous()
    return {"unit": unit, "data": base64.b64encode(integers.numpy().tobytes()).decode()}


def rounded(values: Any, digits: int = 4) -> Any:
    """Nested lists of numbers with so many significant digits; None where there is none."""
    if isinstance(values, Tensor | list):
        return [rounded(part, digits) for part in (values if isinstance(values, list) else values.tolist())]
    if not math.isfinite(values):
        return None
    short = float(f"{values:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


# --- what is said of a token


def _figures(seen: Record, first: int) -> dict[str, Any]:
    """Of every token: its sizes and moves by stage, its energies and so on by layer."""
    physics, moved = seen.physics, rms(seen.x.diff(dim=0, prepend=seen.x[:1]))
    z = None if physics.z is None else physics.z.mean(2)
    columns = {"size_x": seen.size_x, "size_y": seen.size_y, "moved": moved, "z": z} | {
        name: getattr(physics, name) for name in ("kinetic", "potential", "cosine")
    }
    return {name: rounded(column[:, 0, first:], 3) for name, column in columns.items() if column is not None}


def _attention(seen: Record, first: int) -> list[Any] | None:
    """By layer and row: [token, share in thousandths, ...], largest first, of the mean over heads."""
    if seen.attention is None:
        return None
    rows = seen.attention[:, 0].mean(1)[:, first - seen.idx.shape[1] :]  # (L, shown, T)
    shares = rows / rows.abs().sum(-1, keepdim=True).clamp_min(1e-30)
    sizes, places = shares[..., first:].abs().topk(min(MOST_LINES, shares.shape[-1] - first), dim=-1)
    signed = shares[..., first:].gather(-1, places)
    return [
        [
            [n for j, w, size in zip(*row, strict=True) if size >= FAINTEST for n in (j, round(1000 * w))]
            for row in zip(*layer, strict=True)
        ]
        for layer in zip(places.tolist(), signed.tolist(), sizes.tolist(), strict=True)
    ]


def _lens(subject: Subject, first: int) -> dict[str, Any] | None:
    lens = subject.record.lens
    if lens is None:
        return None
    ids = lens.ids[:, 0, first:]
    known = {token: n for n, token in enumerate(sorted(set(ids.flatten().tolist())))}
    return {
        "k": ids.shape[-1],
        "words": [subject.words[token] for token in known],
        "guesses": [known[token] for token in ids.flatten().tolist()],
        "chances": (1e4 * lens.probabilities[:, 0, first:]).round().long().flatten().tolist(),
        "ranks": lens.true_rank[:, 0, first:].flatten().tolist(),
        "reached": lens.reached[0, first:].tolist(),
    }


# --- what is said of all tokens together


def curves(seen: Record) -> dict[str, list[float | None]]:
    """Means over the tokens by depth, by the names of BY_STAGE, BY_LAYER and SCALARS; without what a model lacks."""
    physics = seen.physics
    columns: dict[str, Tensor | None] = {
        "size_x": seen.size_x[:, 0],
        "size_y": None if seen.size_y is None else seen.size_y[:, 0],
        "rank": seen.effective_rank[:, :1],
        "clusters": seen.clusters()[:, :1].float(),
        "z": None if physics.z is None else physics.z[:, 0].flatten(1),
    }
    columns |= {name: getattr(physics, name) for name in ("kinetic", "potential", "cosine")}
    found = {name: rounded(c.flatten(1).nanmean(-1)) for name, c in columns.items() if c is not None}
    rows = physics.scalars
    return found | {n: [rounded(row[n]) for row in rows] for n in SCALARS if rows and all(n in row for row in rows)}


# --- tokens as people can read them


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
