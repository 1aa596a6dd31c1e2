"""The example for Temporal, without its server.

The activities run in the SDK's test environment. The workflow is replayed on the history that a server would have
recorded, which is built here event by event.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import ActivityType, Payloads, WorkflowType
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import (
    ActivityTaskCompletedEventAttributes,
    ActivityTaskScheduledEventAttributes,
    ActivityTaskStartedEventAttributes,
    HistoryEvent,
    WorkflowExecutionCompletedEventAttributes,
    WorkflowExecutionStartedEventAttributes,
    WorkflowTaskCompletedEventAttributes,
    WorkflowTaskScheduledEventAttributes,
    WorkflowTaskStartedEventAttributes,
)
from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Replayer

EXAMPLE = Path(__file__).parents[1] / "examples" / "temporal_workflow.py"
PAGES = 20


class History:
    """The events of one execution, as a server numbers them."""

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []
        self.payloads = 0
        self.activities = 0

    async def encode(self, value: object) -> Payloads:
        """Return a value as the SDK sends it to the server, and count its bytes."""
        payloads = Payloads(payloads=await DataConverter.default.encode([value]))
        self.payloads += payloads.ByteSize()
        return payloads

    def add(self, kind: EventType.ValueType, **attributes: Any) -> int:
        event = HistoryEvent(event_id=len(self.events) + 1, event_type=kind, **attributes)
        event.event_time.FromSeconds(1_800_000_000 + event.event_id)
        self.events.append(event)
        return event.event_id

    def task(self) -> int:
        """Add a task in which a worker ran the workflow's code."""
        queue = TaskQueue(name="reports")
        scheduled = self.add(
            EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
            workflow_task_scheduled_event_attributes=WorkflowTaskScheduledEventAttributes(task_queue=queue, attempt=1),
        )
        started = self.add(
            EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
            workflow_task_started_event_attributes=WorkflowTaskStartedEventAttributes(scheduled_event_id=scheduled),
        )
        return self.add(
            EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
            workflow_task_completed_event_attributes=WorkflowTaskCompletedEventAttributes(
                scheduled_event_id=scheduled,
                started_event_id=started,
                # The SDK then compares the types of activities.
                sdk_metadata=WorkflowTaskCompletedMetadata(core_used_flags=[1, 2, 3]),
            ),
        )

    async def begin(self, value: object) -> int:
        started = WorkflowExecutionStartedEventAttributes(
            workflow_type=WorkflowType(name="Report"),
            task_queue=TaskQueue(name="reports"),
            input=await self.encode(value),
            original_execution_run_id="run",
            first_execution_run_id="run",
            attempt=1,
        )
        started.workflow_task_timeout.FromSeconds(10)
        kind = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
        self.add(kind, workflow_execution_started_event_attributes=started)
        return self.task()

    async def activity(self, name: str, value: object, result: object, task: int) -> int:
        """Add an activity that the workflow started in a task; return the task that its result begins."""
        self.activities += 1
        attributes = ActivityTaskScheduledEventAttributes(
            activity_id=str(self.activities),
            activity_type=ActivityType(name=name),
            task_queue=TaskQueue(name="reports"),
            input=await self.encode(value),
            workflow_task_completed_event_id=task,
        )
        attributes.start_to_close_timeout.FromSeconds(300)
        scheduled = self.add(
            EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, activity_task_scheduled_event_attributes=attributes
        )
        started = self.add(
            EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED,
            activity_task_started_event_attributes=ActivityTaskStartedEventAttributes(
                scheduled_event_id=scheduled, attempt=1
            ),
        )
        completed = ActivityTaskCompletedEventAttributes(
            result=await self.encode(result), scheduled_event_id=scheduled, started_event_id=started
        )
        kind = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
        self.add(kind, activity_task_completed_event_attributes=completed)
        return self.task()

    async def end(self, result: object, task: int) -> None:
        attributes = WorkflowExecutionCompletedEventAttributes(
            result=await self.encode(result), workflow_task_completed_event_id=task
        )
        kind = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED
        self.add(kind, workflow_execution_completed_event_attributes=attributes)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("CHAT_DB", str(tmp_path / "chat.db"))
    # The sandbox of workflows imports the module again, by its name.
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return importlib.import_module(EXAMPLE.stem)


async def recorded(example: Any, changed: bool = False) -> tuple[History, int]:
    """Run the activities, and return their history with the number of bytes that the model read."""
    environment, history, read = ActivityEnvironment(), History(), 0
    task = await history.begin(PAGES)
    for page in range(PAGES):
        manifest = environment.run(example.prepare, page)
        task = await history.activity("prepare", page, manifest, task)
        size = environment.run(example.answer, manifest)
        # A retry returns the same and appends nothing.
        assert environment.run(example.answer, manifest) == size
        task = await history.activity("other" if changed else "answer", manifest, size, task)
        read += size
    await history.end(read, task)
    return history, read


async def test_the_history_has_less_than_a_hundredth_of_what_the_model_reads(example: Any) -> None:
    history, read = await recorded(example)
    whole = sum(event.ByteSize() for event in history.events)
    print(f"The model read {read:,} bytes; payloads {history.payloads:,}, {100 * history.payloads / read:.2f} %;"
          f" events {whole:,}, {100 * whole / read:.2f} %.")
    assert history.payloads * 100 < read
    assert len(example.session().context()["messages"]) == 2 * PAGES
    result = await Replayer(workflows=[example.Report]).replay_workflow(
        WorkflowHistory("report", history.events), raise_on_replay_failure=False
    )
    assert result.replay_failure is None


async def test_a_history_of_other_activities_is_not_that_of_the_workflow(example: Any) -> None:
    history, _ = await recorded(example, changed=True)
    result = await Replayer(workflows=[example.Report]).replay_workflow(
        WorkflowHistory("report", history.events), raise_on_replay_failure=False
    )
    assert result.replay_failure is not None
