"""How each test ran, for the summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


class NeedsProcesses(RuntimeError):
    """The test cannot be right with all its ranks in one process; the text says why."""

    #: Where texts are kept while somebody wants to know, whoever catches the exception.
    noted: ClassVar[list[str] | None] = None

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        if self.noted is not None:
            self.noted.append(reason)


@dataclass
class Ledger:
    """Tests by their pytest ids; those that start no ranks are in neither list."""

    together: dict[str, None] = field(default_factory=dict)
    #: With the reason.
    as_processes: dict[str, str] = field(default_factory=dict)
    #: The test that runs now.
    current: str = ""

    def ran_together(self) -> None:
        """The running test has all its ranks in one process."""
        if self.current not in self.as_processes:
            self.together[self.current] = None

    def ran_as_processes(self, reason: str) -> None:
        """The running test has a process for each rank."""
        self.together.pop(self.current, None)
        self.as_processes.setdefault(self.current, reason)

    def dump(self) -> dict[str, object]:
        """For another process (xdist)."""
        return {"together": list(self.together), "as_processes": dict(self.as_processes)}

    def add(self, dumped: dict[str, object]) -> None:
        """What another process dumped."""
        together, as_processes = dumped["together"], dumped["as_processes"]
        assert isinstance(together, list) and isinstance(as_processes, dict)
        self.together.update(dict.fromkeys(together))
        self.as_processes.update(as_processes)

    def summary(self, verbose: bool) -> list[str]:
        """Lines for the end of the run; none if no test started ranks."""
        if not self.together and not self.as_processes:
            return []
        lines = [f"all ranks in one process: {_tests(len(self.together))}; as processes: {len(self.as_processes)}"]
        if verbose:
            lines += [f"  in one process: {test}" for test in self.together]
        lines += [f"  ran as processes: {test}: {reason}" for test, reason in self.as_processes.items()]
        return lines


def _tests(count: int) -> str:
    return f"{count} test" if count == 1 else f"{count} tests"
