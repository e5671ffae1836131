"""A campaign on the workers of a Dask cluster, one shard a task:

    python3 data/recipes/dask_shards.py workload FILE DIR --shards 64 --scheduler tcp://head:8786

Without --scheduler the tasks run here. Whatever was interrupted goes on where it was when this is run again, with any number of shards.
The directory has to be one that all workers see; glean is looked for in the PATH, or named by GLEAN.
"""

import argparse
import os
import subprocess


def run_shard(kind, file, out, index, of):
    """Runs one shard; 1 says that others are not done yet."""
    glean = os.environ.get("GLEAN", "glean")
    shard = f"{index}/{of}"
    command = [glean, "replay", kind, file, "--out", out, "--shard", shard, "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode > 1:
        raise RuntimeError(f"shard {shard}: {done.stderr.strip()}")
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["workload", "campaign"])
    parser.add_argument("file")
    parser.add_argument("out")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--scheduler")
    arguments = parser.parse_args()

    from dask.distributed import Client

    here = dict(processes=False, dashboard_address=None)
    with Client(arguments.scheduler) if arguments.scheduler else Client(**here) as client:
        shards = range(1, arguments.shards + 1)
        of = arguments.shards
        tasks = [client.submit(run_shard, arguments.kind, arguments.file, arguments.out, index, of) for index in shards]
        client.gather(tasks)
    # Who came last may have found that another was still writing: this one finds all of it.
    print(run_shard(arguments.kind, arguments.file, arguments.out, 1, 1))


if __name__ == "__main__":
    main()
