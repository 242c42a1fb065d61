"""The clusters as a table."""

from typing import Any

import numpy as np

from snmf_dist.report.aggregates import EdgeSums, Members
from snmf_dist.report.drawing import color_of, to_png
from snmf_dist.report.features import Profile
from snmf_dist.report.html import Html, section, table, text_of
from snmf_dist.report.words import count, share

LISTED_CLUSTERS = 200  # clusters at most
LONGEST = 40  # letters of an id


def cluster_section(
    solution: Any, members: Members, nodes: list[list[str]], edges: EdgeSums | None, profile: Profile | None
) -> Html:
    """One line a cluster, the largest first where there are too many for all."""
    sizes, K = solution.sizes, solution.k
    listed = (
        range(K) if K <= LISTED_CLUSTERS else np.sort(np.argsort(-sizes, kind="stable")[:LISTED_CLUSTERS]).tolist()
    )
    images = None if profile is None else profile.images
    features = profile is not None and images is None
    head = ["Cluster", *(["Mean"] if images is not None else []), "Rows", "Share", "Strength"]
    head += ["Weight inside", "Nearest"] if edges is not None else []
    head += ["Central nodes", *(["Features that stand out"] if features else [])]
    rows = []
    largest = max(int(sizes.max()), 1)
    for k in listed:
        row: list[Any] = [Html(f'<span class="dot" style="background:{color_of(k)}"></span>{k}')]
        if images is not None:
            row.append(Html(f'<img alt="mean image of cluster {k}" src="{to_png(_small(images[k]))}">'))
        width = max(round(56 * sizes[k] / largest), 1)
        bar = f'<span class="track" aria-hidden="true"><span class="bar" style="width:{width}px"></span></span>'
        row += [
            count(sizes[k]),
            Html(f"{bar}<span class=num>{text_of(share(sizes[k] / len(solution.labels)))}</span>"),
        ]
        row.append(f"{members.mean_strength[k]:.2f}" if sizes[k] else "–")
        if edges is not None:
            row += _edges_of(k, edges)
        row.append(Html(", ".join(f"<span class=id>{text_of(_cut(node))}</span>" for node in nodes[k])))
        if features and profile is not None:
            row.append(", ".join(profile.top[k]))
        rows.append(row)
    words = {len(head) - 1, *({len(head) - 2} if features else set()), 0}
    note = "Strength is the mean share that a cluster has of its rows’ memberships."
    if edges is not None:
        note += (
            " Weight inside is the share of its edge weight that stays in the cluster; the nearest cluster is the "
        )
        note += "one that gets most of the rest."
    if K > LISTED_CLUSTERS:
        note += f" The {LISTED_CLUSTERS} largest of {K} clusters are listed."
    return section("Clusters", table(head, rows, words=words, caption="Clusters"), note=note)


def _edges_of(k: int, edges: EdgeSums) -> list[str]:
    """The share inside, and the nearest cluster with its share."""
    shares = edges.shares[k].copy()
    inside, shares[k] = shares[k], 0
    near = int(shares.argmax())
    return [share(inside), f"{near} ({share(shares[near])})" if shares[near] > 0 else "–"]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _small(image: np.ndarray) -> np.ndarray:
    """Every so many pixels of a large image."""
    step = max(-(-max(image.shape) // 64), 1)
    return image[::step, ::step]
