"""Several processes that run one program: joining them, and leaving together.

**The failure model.**  Every process runs the same program.  Each has one TCP connection to the *hub*, a helper process
beside process 0 that hosts JAX's coordination service, too, so that no rank's death takes the service away.

========================================  ==============================================  =======================
what goes wrong in one process            how it is noticed                               and becomes an error in
========================================  ==============================================  =======================
it dies (kill -9, out of memory, abort)   its connection closes                           milliseconds
it raises, or ends with another code      its `sys.excepthook` says so, with traceback    milliseconds
it ends while others wait for it          it says that it leaves; they say what they want 1 s
it stops (SIGSTOP), its machine is gone   no beat                                         ¾ of the timeout
it doesn't come (an endless loop)         others wait, it doesn't, and starts nothing     ¾ of the timeout
it comes late to the start                the roll call                                   the timeout
it runs another program                   LAMINA_CHECK=1: before the program runs         milliseconds
the same, without the check               all wait, but not for the same                  ¾ of the timeout
the helper dies                           the connection closes; JAX ends all processes   at once
========================================  ==============================================  =======================

1. The first failure is the failure.  The hub tells it to all, once.
2. It becomes a ProcessError where Lamina waits (reads, `block_until_ready`, the queue guard) and at the next op.
3. A process that waits elsewhere is ended after another ¼ of the timeout, with the error and its stack on stderr: JAX's
   own waits can't be interrupted.  Such are `jax.block_until_ready`, and, where a process has a single CPU device, the
   call that starts a program.
4. After a failure JAX's teardown, which waits for the dead, is left out: exit handlers that were registered before
   `initialize` don't run.  The exit code is the process's own if it failed first, else 86.
5. A wait is long for a reason when all processes of the group wait for the same program: then nobody is blamed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import jax

from lamina.engine import compat, watching
from lamina.engine.leaving import Exit
from lamina.engine.membership import Membership, membership
from lamina.engine.watchdog import Session
from lamina.engine.wire import GREETING, Line, dial
from lamina.errors import ProcessError, explained, with_fix

_joined: tuple[Membership, Exit] | None = None


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    devices_per_process: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    timeout: float | None = None,
) -> None:
    """Joins the processes that run this program; before anything uses JAX's devices.

    `coordinator` is the host of process 0 and a free port there, as "node0:1234".  What isn't given comes from
    LAMINA_COORDINATOR, LAMINA_PROCESSES, LAMINA_PROCESS, LAMINA_DEVICES_PER_PROCESS, LAMINA_LOCAL_DEVICES and
    LAMINA_TIMEOUT (`lamina launch` sets them), and what isn't there either from SLURM, Kubernetes, Open MPI or a TPU
    pod.  Where nothing says that there are several processes it does nothing, so a program can always call it; a
    second call does nothing, too.

    `devices_per_process` is how many virtual devices a CPU is split into, `local_device_ids` which accelerators of the
    host this process uses.  A process that dies, stops or doesn't come becomes a ProcessError in the others within
    `timeout` seconds (60), and so does one that is late to start.

    >>> import lamina
    >>> lamina.initialize()  # one process: nothing to join
    >>> lamina.initialize(num_processes=2, process_id=0)
    Traceback (most recent call last):
    lamina.errors.ProcessError: initialize(): not given and not found: coordinator
      fix: give them as arguments, or set LAMINA_COORDINATOR
    """
    global _joined
    given = {
        "coordinator": coordinator,
        "num_processes": num_processes,
        "process_id": process_id,
        "devices_per_process": devices_per_process,
        "local_device_ids": local_device_ids,
        "timeout": timeout,
    }
    with explained("initialize()"):
        asked = membership(given)
        if asked is None or (_joined is not None and asked == _joined[0]):
            return
        if asked.count == 1 and _joined is None:
            _check_unused()
            return _use_devices(asked)
        if _joined is not None:
            fact = f"this process has joined already, as {_joined[0].rank} of {_joined[0].count}: {_joined[0]}"
            raise ProcessError(with_fix(fact, "call lamina.shutdown() before joining others"))
        _check_unused()
        line = _roll_call(asked)
        _join(asked)
        # A forked child (a data loader's, say) would keep the connection open, and hide that this process died.
        os.register_at_fork(after_in_child=line.close)
        session = Session(line, asked.rank, asked.count, asked.timeout)
        watching.watch(session)
        _joined = asked, Exit(session)


def shutdown() -> None:
    """Waits until all processes have called it, and parts from them.

    Programs needn't: a process that ends does the same.  Nothing happens where nothing was joined.

    >>> import lamina
    >>> lamina.shutdown()
    """
    global _joined
    if _joined is None:
        return
    _, leaving = _joined
    session = leaving.session
    if not session.leave():
        session.check()
    jax.distributed.shutdown()
    leaving.forget()
    watching.watch(None)
    session.line.close()
    _joined = None


def leaving() -> Exit | None:
    """What happens when this process ends, if it has joined others."""
    return None if _joined is None else _joined[1]


def _check_unused() -> None:
    if jax.distributed.is_initialized():
        fact = "jax.distributed.initialize was called already"
        raise ProcessError(
            with_fix(fact, "call lamina.initialize in its place: it calls it, and watches the processes")
        )
    if compat.backends_are_used():
        fact = "JAX's devices were used already, so no other processes can join them"
        fix = (
            "call lamina.initialize before anything that needs a device: jax.devices(), jnp.ones, DeviceMesh.create, …"
        )
        raise ProcessError(with_fix(fact, fix))


# -- joining ----------------------------------------------------------------------------------------------------------


def _roll_call(asked: Membership) -> Line:
    """The line to the hub, when all processes are there."""
    if asked.rank == 0:
        _start_helper(asked)
    line = dial(asked.host, asked.port, asked.timeout)
    if line is None:
        fact = f"process 0 doesn't answer at {asked.coordinator} within {asked.timeout:g} s"
        raise ProcessError(with_fix(fact, "start it, check the address and the firewall, or set a longer timeout"))
    name = f"pid {os.getpid()} on {socket.gethostname()}"
    line.send({"kind": GREETING, "rank": asked.rank, "count": asked.count, "name": name})
    line.within(1.25 * asked.timeout + 5)
    try:
        answer = next(line.messages(), {"kind": "closed"})
    except TimeoutError:
        answer = {"kind": "closed"}
    match answer["kind"]:
        case "start":
            line.within(None)
            return line
        case "late":
            late = ", ".join(map(str, answer["missing"]))
            fact = f"of {asked.count} processes these didn't come within {answer['seconds']:g} s: {late}"
            raise ProcessError(with_fix(fact, "start all of them, or set a longer timeout"))
        case "refused":
            raise ProcessError(with_fix(answer["why"], "give each process its own id, and all the same number"))
    fact = f"what answers at {asked.coordinator} is no Lamina program that starts"
    raise ProcessError(with_fix(fact, "see what process 0 says, or choose another port"))


def _start_helper(asked: Membership) -> None:
    arguments = [asked.port, asked.count, asked.timeout, asked.timeout]
    helper = subprocess.Popen(
        [sys.executable, "-m", "lamina.engine.coordinator", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # it must survive a signal to this process's group
        text=True,
    )
    assert helper.stdout is not None and helper.stderr is not None
    said = helper.stdout.readline().strip()
    if said != "ready":
        words = said or helper.stderr.read().strip() or f"it ended with {helper.wait()}"
        fact = f"the coordinator can't listen at port {asked.port}: {words}"
        raise ProcessError(with_fix(fact, "choose a port that is free on the host of process 0"))
    helper.stdout.close()
    helper.stderr.close()
    threading.Thread(target=helper.wait, name="lamina reaps", daemon=True).start()


def _use_devices(asked: Membership) -> None:
    if asked.devices_per_process is not None:
        jax.config.update("jax_num_cpu_devices", asked.devices_per_process)


def _join(asked: Membership) -> None:
    _use_devices(asked)
    compat.use_gloo()
    ids: Any = None if asked.local_device_ids is None else list(asked.local_device_ids)
    compat.join(asked.coordinator, asked.count, asked.rank, ids, asked.timeout)
