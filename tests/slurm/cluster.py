"""A SLURM of one's own for the tests: controller, one node with four GPUs that are none, and authentication.

Everything is private (a key and socket of munge's, free ports, a folder that goes away) but one thing: the job step
plugin of Snakemake takes SLURM_CONF out of the environment, so the configuration has to be where SLURM looks for it by
itself. There is a link to it there while the cluster is up, and one cluster at a time on a machine.

By hand: python tests/slurm/cluster.py runs one until Ctrl-C.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

GPUS = 4
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "squeue", "scancel", "srun")
PACKAGES = "slurmctld slurmd slurm-client munge"
CONFIGURATION = Path("/etc/slurm/slurm.conf")

# The node claims more cores and memory than there may be, so that as many jobs as there are GPUs run side by side.
CORES, MEMORY = 16, 200_000

SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MinJobAge=3600
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
KillWait=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_min_interval=100000,bf_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} Gres=gpu:fake:{gpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE
PartitionName=long Nodes={host} MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes={host} MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


def why_not() -> str | None:
    """What keeps a cluster from being started here, or None."""
    if os.geteuid() != 0:
        return "a SLURM cluster is started by root only"
    for program in PROGRAMS:
        if find(program) is None:
            return f"SLURM is not installed (no {program}): apt-get install --no-install-recommends {PACKAGES}"
    if CONFIGURATION.exists() and not CONFIGURATION.is_symlink():
        return f"this machine has a SLURM of its own ({CONFIGURATION})"
    return None


def find(program: str) -> str | None:
    """A program's path; the daemons' folder is not on everybody's PATH."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Cluster:
    """A context: the cluster is up within it."""

    def __init__(self) -> None:
        self.daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Cluster":
        self.lock = open("/run/longflow-slurm.lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.folder = Path(tempfile.mkdtemp(prefix="longflow-slurm-"))
        self.folder.chmod(0o755)  # munge wants its socket to be reached by everybody
        try:
            self._write()
            self._start("munged", "--foreground", *self._munge())
            self._until("munge", lambda: (self.folder / "socket").exists())
            self._start("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
            self._start("slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", self.host)
            self._until("the node", lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T", check=False))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *fault: object) -> None:
        if len(self.daemons) == 3:
            self.ask("scancel", "--user=root", check=False)
            deadline = time.monotonic() + 15  # the node has to be there until the jobs are gone
            while self.ask("squeue", "--noheader", check=False).strip() and time.monotonic() < deadline:
                time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        if CONFIGURATION.is_symlink() and CONFIGURATION.readlink().parent == self.folder:
            CONFIGURATION.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()

    def ask(self, *command: str, check: bool = True) -> str:
        """What a command prints."""
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}\n{self.logs()}"
        return done.stdout

    def job(self, number: str) -> dict[str, str]:
        """What the controller knows of a job; it forgets none while it is up."""
        words = self.ask("scontrol", "show", "job", "--oneliner", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def jobs(self) -> dict[str, str]:
        """All jobs there ever were, by number, with what Snakemake calls them."""
        lines = self.ask("squeue", "--states=all", "--noheader", "--format=%i|%k").splitlines()
        return dict(line.split("|", 1) for line in lines)

    def logs(self) -> str:
        """The end of what the daemons wrote."""
        return "\n".join(
            f"--- {path.name}\n" + path.read_text(errors="replace")[-3000:]
            for path in sorted(self.folder.glob("*.log"))
        )

    def _write(self) -> None:
        self.host = socket.gethostname().split(".")[0]
        for name in ("munge", "state", "spool", "devices"):
            (self.folder / name).mkdir(mode=0o700)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for number in range(GPUS):
            device = self.folder / "devices" / f"gpu{number}"
            try:
                os.mknod(device, 0o600 | 0o020000, os.makedev(1, 3))  # /dev/null under another name
            except OSError:
                device.touch()
        (self.folder / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={self.host} Name=gpu Type=fake File={self.folder}/devices/gpu[0-{GPUS - 1}]\n"
        )
        (self.folder / "slurm.conf").write_text(
            SLURM_CONF.format(
                host=self.host, ports=free_ports(2), folder=self.folder, cores=CORES, memory=MEMORY, gpus=GPUS
            )
        )
        CONFIGURATION.parent.mkdir(exist_ok=True)
        CONFIGURATION.unlink(missing_ok=True)  # a link that a killed test left
        CONFIGURATION.symlink_to(self.folder / "slurm.conf")

    def _munge(self) -> list[str]:
        private = [f"--{name}-file={self.folder}/munge/{name}" for name in ("key", "pid", "log", "seed")]
        return [f"--socket={self.folder}/socket", *private]

    def _start(self, program: str, *arguments: str) -> None:
        """Start a daemon that ends with this process, however that ends."""
        path = find(program)
        assert path is not None
        with open(self.folder / f"{program}.log", "wb") as log:
            command = ["setpriv", "--pdeathsig", "TERM", path, *arguments]
            self.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _until(self, what: str, ready) -> None:
        deadline = time.monotonic() + 30
        while not ready():
            assert time.monotonic() < deadline, f"{what} did not come up\n{self.logs()}"
            time.sleep(0.1)


if __name__ == "__main__":
    if reason := why_not():
        raise SystemExit(reason)
    with Cluster() as cluster, contextlib.suppress(KeyboardInterrupt):
        print(cluster.ask("sinfo", "-o", "%P %T %C %G %m"), end="", flush=True)
        signal.pause()
