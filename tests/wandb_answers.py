"""What a stand-in of the W&B server knows, and its answers to the GraphQL operations of wandb 0.31.

Runs, sweeps over grids, and artifacts, all in memory; `wandb_server` is its door.
"""
# ruff: noqa: N802  (methods are named as the operations)

import itertools
import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field

import yaml


@dataclass
class Run:
    """What the server knows of one run."""

    name: str
    settings: dict = field(default_factory=dict)  # the latest variables of UpsertBucket
    lines: dict = field(default_factory=lambda: defaultdict(dict))  # file -> line number -> text
    uploads: dict = field(default_factory=dict)  # file's name -> bytes
    exit_codes: list = field(default_factory=list)

    def _json(self, name):
        return [json.loads(text) for _, text in sorted(self.lines[name].items())]

    @property
    def history(self):
        return self._json("wandb-history.jsonl")

    @property
    def summary(self):
        return (self._json("wandb-summary.json") or [{}])[-1]

    @property
    def config(self):
        """Without W&B's own entry."""
        found = json.loads(self.settings.get("config") or "{}")
        return {key: entry["value"] for key, entry in found.items() if key != "_wandb"}


@dataclass
class Sweep:
    """A grid and what its agents were given."""

    name: str
    config: dict
    points: list
    given: list = field(default_factory=list)  # (agent, run id, point)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, agent):
        """The next point as a command for `agent`; `exit` when all are given."""
        with self.lock:
            if len(self.given) == len(self.points):
                return [{"type": "exit"}]
            point = self.points[len(self.given)]
            run_id = f"{self.name}r{len(self.given)}"
            self.given.append((agent, run_id, point))
        args = {key: {"value": value} for key, value in point.items()}
        program = self.config.get("program")
        return [{"type": "run", "run_id": run_id, "program": program, "args": args}]


def grid(config):
    """Points of a grid in order, the last parameter fastest."""
    axes = {
        key: entry.get("values", [entry.get("value")])
        for key, entry in config["parameters"].items()
    }
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


_FIXED = {  # operation -> its answer, always
    "Viewer": {"viewer": {
        "id": "me", "entity": "me", "username": "me", "email": "me@here", "admin": False,
        "flags": "{}", "teams": {"edges": []},
    }},
    "ServerFeaturesQuery": {"serverInfo": {"features": []}},
    "OrganizationCoreWeaveOrganizationID": {
        "entity": {"organization": {"coreWeaveOrganizationId": None}}
    },
    "RunStoppedStatus": {"project": {"run": {"stopped": False}}},
    "ArtifactType": {"project": {"artifact": None}},
}  # fmt: skip


class Answers:
    """`runs`, `sweeps`, `artifacts` by name; `operations` and `unknown` as they came."""

    url = ""  # of the server, for uploads

    def __init__(self):
        self.runs, self.sweeps, self.artifacts = {}, {}, {}
        self.operations, self.unknown = [], []
        self._lock = threading.Lock()

    def run(self, name):
        with self._lock:
            return self.runs.setdefault(name, Run(name))

    def answer(self, operation, given):
        """`data` of a GraphQL operation with the variables `given`."""
        self.operations.append(operation)
        method = getattr(self, f"_{operation}", None)
        if method is None and operation not in _FIXED:
            self.unknown.append(operation)
        return method(given) if method else _FIXED.get(operation, {})

    def _RunResumeStatus(self, given):
        run, project = self.runs.get(given["name"]), _project(given["project"])
        if run is None or not run.settings:
            return {"model": {**project, "bucket": None}}
        found = {"summaryMetrics": json.dumps(run.summary), "tags": [], "wandbConfig": '{"t": 1}'}
        for kind in ("history", "events"):
            lines = run.lines[f"wandb-{kind}.jsonl"]
            found[f"{kind}LineCount"] = len(lines)
            found[f"{kind}Tail"] = json.dumps([lines[max(lines)]] if lines else [])
        found["logLineCount"] = len(run.lines["output.log"])
        return {"model": {**project, "bucket": {**_bucket(run), **found}}}

    def _UpsertBucket(self, given):
        name = given.get("name") or given.get("id")
        inserted = name not in self.runs
        run = self.run(name)
        run.settings.update({key: value for key, value in given.items() if value is not None})
        bucket = {**_bucket(run), "project": _project(run.settings.get("project"))}
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def _CreateRunFiles(self, given):
        files = [
            {"name": name, "uploadUrl": f"{self.url}/upload/{given['run']}/{name}"}
            for name in given["files"]
        ]
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}

    def _CreateArtifact(self, given):
        asked = given["input"]
        with self._lock:
            name = f"artifact{len(self.artifacts)}"
            collection = asked.get("artifactCollectionName") or asked["artifactCollectionNames"][0]
            self.artifacts[name] = {
                "name": collection, "type": asked["artifactTypeName"], "files": {}, "whole": False,
                "run": asked.get("runName"),
            }  # fmt: skip
        sequence = {"latestArtifact": None}
        artifact = {"id": name, "state": "PENDING", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": artifact}}

    def _CreateArtifactManifest(self, given):
        name = given["artifactID"]
        url = f"{self.url}/artifact/{name}/manifest.json"
        manifest = {"id": name, "file": {"id": name, "uploadUrl": url, "uploadHeaders": []}}
        return {"createArtifactManifest": {"artifactManifest": manifest}}

    def _CreateArtifactFiles(self, given):
        nodes = []
        for file in given["input"]["artifactFiles"]:
            name, number = file["name"], file["artifactID"]
            url = f"{self.url}/artifact/{number}/{name}"
            nodes.append({"node": {
                "storagePath": name, "uploadUrl": url, "uploadHeaders": [],
                "uploadMultipartUrls": None, "artifact": {"id": number},
            }})  # fmt: skip
        return {"createArtifactFiles": {"files": {"edges": nodes}}}

    def _CommitArtifact(self, given):
        self.artifacts[given["artifactID"]]["whole"] = True
        return {"commitArtifact": {"artifact": {"id": given["artifactID"], "digest": "d"}}}

    def _UpsertSweep(self, given):
        config = yaml.safe_load(given["config"])
        name = f"sweep{len(self.sweeps)}"
        self.sweeps[name] = Sweep(name, config, grid(config))
        sweep = {"name": name, "project": _project(given.get("projectName"))}
        return {"upsertSweep": {"sweep": sweep, "configValidationWarnings": []}}

    def _SweepWithRuns(self, given):
        sweep = self.sweeps[given["sweep"]]
        found = {
            "id": sweep.name, "name": sweep.name, "method": "grid", "state": "RUNNING",
            "config": yaml.safe_dump(sweep.config), "runs": {"edges": []},
            "priorRuns": {"edges": []},
            **dict.fromkeys(("bestLoss", "controller", "scheduler", "description", "heartbeatAt")),
            "earlyStopJobRunning": False, "createdAt": "2026-01-01T00:00:00", "updatedAt": None,
        }  # fmt: skip
        return {"project": {"sweep": found}}

    def _CreateAgent(self, given):
        with self._lock:
            number = self.operations.count("CreateAgent")
        return {"createAgent": {"agent": {"id": f"{given['sweep']}/{number}"}}}

    def _Heartbeat(self, given):
        sweep = self.sweeps[given["id"].split("/")[0]]
        busy = json.loads(given.get("runState") or "{}")
        commands = [] if busy else sweep.next(given["id"])
        return {"agentHeartbeat": {"agent": {"id": given["id"]}, "commands": json.dumps(commands)}}


def _project(name):
    entity = {"id": "me", "name": "me"}
    return {"id": "p", "name": name or "uncategorized", "entity": entity}


def _bucket(run):
    return {
        "id": run.name, "name": run.name, "displayName": run.settings.get("displayName"),
        "description": None, "config": run.settings.get("config") or "{}",
        "sweepName": run.settings.get("sweep"), "historyLineCount": len(run.history),
    }  # fmt: skip
