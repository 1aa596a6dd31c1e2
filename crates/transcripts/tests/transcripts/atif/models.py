"""Lets the models of the package `atif` judge trajectories.

Each line of stdin is `{"name", "document"}`. Beyond what the models check, the reference to a sub-agent must name a
trajectory of the same document, and an id must be used once. Prints a line of JSON for each document that is refused,
and one with the number of documents at the end.
"""

import json
import sys

from atif import Trajectory


def references(trajectory):
    """Checks the references of a trajectory and of the embedded ones."""
    embedded = {one.trajectory_id for one in trajectory.subagent_trajectories or []}
    for step in trajectory.steps:
        for result in step.observation.results if step.observation else []:
            for ref in result.subagent_trajectory_ref or []:
                if ref.trajectory_id not in embedded:
                    raise ValueError(f"step {step.step_id} refers to {ref.trajectory_id!r}")
    ref = trajectory.continued_trajectory_ref
    if ref is not None and ref.removeprefix("#") not in embedded:
        raise ValueError(f"continued as {ref!r}")
    if trajectory.final_metrics and trajectory.final_metrics.total_steps != len(trajectory.steps):
        raise ValueError("the number of steps is wrong")
    for one in trajectory.subagent_trajectories or []:
        references(one)


judged = 0
for line in sys.stdin:
    judged += 1
    given = json.loads(line)
    try:
        if given["document"]["schema_version"] != "ATIF-v1.8":
            raise ValueError("another version")
        references(Trajectory.model_validate(given["document"]))
    except ValueError as error:
        print(json.dumps({"name": given["name"], "error": str(error)[:600]}))
print(json.dumps({"judged": judged}))
