"""Tracing a named commit in git: who may own it, the side commits of a merge, the inner range of a dependency bump.

Asked outside the transaction that names the commit, because it reads a mirror; a mirror that cannot answer costs
nothing but the hint.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session, sessionmaker

from service.domain.origin import PLACES, bumps_in, owners_of, same_repository, submodule_urls
from service.store import repositories
from service.store.regressions import untraced
from service.store.tables import GitCommit, Regression, Repository
from service.usecases.ports import GitMirror, MirrorError, Mirrors

MAX_INNER = 200
MAX_OWNERS = 5


def trace_culprits(sessions: sessionmaker[Session], *, mirrors: Mirrors) -> int:
    """Write what git says of every named commit that has not been traced; returns how many were.

    Raises MirrorError when a mirror cannot answer: those that were traced stay traced.
    """
    with sessions() as session:
        ids = untraced(session)
    failure: MirrorError | None = None
    for regression_id in ids:
        with sessions() as session:
            regression = session.get_one(Regression, regression_id)
            repository = session.get_one(Repository, regression.repository_id)
            culprit = session.get_one(GitCommit, regression.culprit_commit_id)
            known = {other.clone_url: other.name for other in repositories.all_of_them(session)}
        mirror = mirrors.open(repository_id=repository.id, clone_url=repository.clone_url)
        try:
            found = origin_of(mirror, culprit, known=known)
        except MirrorError as error:
            failure = error  # one repository that is away must not keep the others waiting
            continue
        with sessions.begin() as session:
            regression = session.get_one(Regression, regression_id, with_for_update=True)
            if regression.culprit_commit_id == culprit.id:
                regression.origin = found
    if failure is not None:
        raise failure
    return len(ids)


def origin_of(mirror: GitMirror, culprit: GitCommit, *, known: dict[str, str]) -> dict[str, Any]:
    """Return what git says of one commit, as it is stored: `commit`, `owners`, `inner`, `fork`, `bumps`."""
    origin: dict[str, Any] = {"commit": culprit.sha, "owners": [], "inner": [], "fork": None, "bumps": []}
    if not culprit.parents or not mirror.contains(culprit.sha):
        return origin
    parent = culprit.parents[0]
    rules = next((text for place in PLACES if (text := mirror.read_file(culprit.sha, place))), "")
    origin["owners"] = list(owners_of(rules, mirror.diff_names(parent, culprit.sha)))[:MAX_OWNERS]
    if len(culprit.parents) > 1:
        facts = mirror.commits(mirror.commits_between(parent, culprit.parents[1])[-MAX_INNER:])
        origin["inner"] = [{"sha": one.sha, "subject": one.subject, "author": one.author} for one in facts]
        origin["fork"] = facts[0].parents[0] if facts and facts[0].parents else None
    urls = submodule_urls(mirror.read_file(culprit.sha, ".gitmodules") or "")
    for bump in bumps_in(mirror.diff_text(parent, culprit.sha)):
        url = urls.get(bump.place, bump.place)
        name = next((name for clone_url, name in known.items() if same_repository(clone_url, url)), None)
        if name is not None:
            origin["bumps"].append({**asdict(bump), "repository": name})
    return origin
