"""What the machine did is told once, to whoever owns the machines, and to nobody else."""

from __future__ import annotations

from sqlalchemy import select

from service.domain.states import NotificationEvent, RegressionState
from service.store.tables import ChangePoint, Channel, GitCommit, Notification, Regression, Run
from service.usecases import alert
from service.usecases.fleet import tell_fleet
from tests.peers import Peers, deliver, point_channels
from tests.story import Planted, Story


def story_with(sessions, *, fleet: bool) -> Story:
    story = Story(sessions, [Planted()] * 14, seed=3)
    for tip in (2, 4):
        story.push(tip)
    with sessions.begin() as session:
        if fleet:
            config = {"fleet": True}
            session.add(Channel(repository_id=story.repository_id, name="fleet", kind="email", config=config))
        run = session.scalars(select(Run).order_by(Run.id.desc())).first()
        good = session.scalars(select(GitCommit).where(GitCommit.position == 2)).one()
        series = session.execute(select(Notification.id)).first()
        assert series is None
    story.run_id, story.good_id = run.id, good.id
    return story


def machine_moves(story) -> None:
    from service.store.tables import Series

    with story.sessions.begin() as session:
        run, good = session.get_one(Run, story.run_id), session.get_one(GitCommit, story.good_id)
        series_id = session.scalars(select(Series.id).order_by(Series.id)).first()
        change = session.scalars(select(ChangePoint).where(ChangePoint.series_id == series_id)).first()
        if change is None:
            change = ChangePoint(series_id=series_id, commit_id=run.commit_id, previous_commit_id=good.id, z=9.0,
                                 direction="regression", detector="d", detector_version=1, before_s=1e-3, after_s=2e-3,
                                 effect=1.0, effect_low=0.9, effect_high=1.1, p_value=0.0, withdrawn_at=story.now,
                                 withdrawn_reason="the vendor's library moved with it")  # fmt: skip
            session.add(change)
            session.flush()
        tell_fleet(session, run=run, good=good, changes=[change], now=story.now)


def test_the_fleet_hears_once_and_the_kernels_owners_never(sessions, tmp_path):
    story = story_with(sessions, fleet=True)
    machine_moves(story)
    machine_moves(story)
    with sessions() as session:
        rows = session.execute(select(Channel.name, Notification.event).join(Notification)).all()
        assert [tuple(row) for row in rows] == [("fleet", "environment")]
        assert session.scalars(select(Regression.state)).all() == ["not_real"]
    peers = Peers(tmp_path / "caught")
    try:
        point_channels(story, peers, email={"to": ["fleet@example.org"], "smtp_url": peers.smtp_url, "fleet": True})
        deliver(story, peers)
        (mail,) = peers.store.all()
    finally:
        peers.close()
    assert "The machine, not a commit" in mail.title
    assert "the vendor's library moved with it" in mail.text


def test_without_a_fleet_channel_nothing_is_stored(sessions):
    story = story_with(sessions, fleet=False)
    machine_moves(story)
    with sessions() as session:
        assert session.scalars(select(Regression.id)).all() == []


def test_a_fleet_channel_hears_of_no_regression(sessions):
    channel = Channel(
        config={"fleet": True}, events=list(NotificationEvent), directions=["regression"], min_severity="low"
    )
    regression = Regression(direction="regression", severity="critical", state=RegressionState.CONFIRMED)
    assert not alert.wants(channel, regression, NotificationEvent.OPENED)
    assert alert.wants(channel, regression, NotificationEvent.ENVIRONMENT)


def test_a_step_that_the_vendors_library_takes_too_is_one_notice_to_the_fleet_and_no_page(sessions):
    """From pushes to the outbox: the two commits differ in what lies below the kernels, and nobody is paged for it."""
    plans = [Planted()] * 14
    plans[8] = Planted({"gemm": 1.15, "gemm_f32_openblas": 1.15})
    story = Story(sessions, plans, seed=3)
    with sessions.begin() as session:
        session.add(Channel(repository_id=story.repository_id, name="fleet", kind="email", config={"fleet": True}))
    for tip in (2, 4, 6, 8, 10, 12):
        story.push(tip)
    with sessions() as session:
        rows = session.execute(select(Channel.name, Notification.event).join(Notification)).all()
        assert [tuple(row) for row in rows] == [("fleet", "environment")]
        assert set(session.scalars(select(Regression.state))) == {"not_real"}
    assert story.found() == {}
