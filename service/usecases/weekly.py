"""The weekly list: series that move between two levels by themselves. They never page; once a week they are named.

A channel hears of it only if it asks for the event `bimodal`. Asked every hour, told once: the ISO week is the
message's subject, so a beat that was away on Monday makes up for it.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.notice import week_subject
from service.domain.states import NotificationEvent
from service.store import notices, repositories
from service.usecases import alert
from service.usecases.aftermath import Aftermath


def order_list(session: Session, *, now: datetime) -> Aftermath:
    """Put this week's list into the outbox of every repository that has such series; twice changes nothing."""
    aftermath = Aftermath()
    subject = week_subject(now)
    if subject is None:
        return aftermath
    for repository in repositories.all_of_them(session):
        if not notices.two_level_series(session, repository_id=repository.id):
            continue
        event = NotificationEvent.BIMODAL
        aftermath.add(alert.enqueue_notice(session, repository_id=repository.id, event=event, subject=subject, now=now))
    return aftermath
