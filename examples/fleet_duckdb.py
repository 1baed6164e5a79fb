"""Questions about many runs, with DuckDB on one machine: python fleet_duckdb.py FLEET [CONFIG_KEY]

FLEET is what ``barograph export DIR --to parquet --partition project,run -o FLEET`` has written; docs/fleet.md has its
tables. CONFIG_KEY is the setting to compare, such as actor.lr; without it, the one that differs most.
"""

import sys
from pathlib import Path

import duckdb  # pip install duckdb

QUESTIONS = {
    "Which configs collapse, and when?": """
        SELECT c.value AS choice, count(*) AS runs, count(f.onset) AS collapsed,
               round(count(f.onset) / count(*), 3) AS share, median(f.onset) AS median_onset, min(f.onset) AS first
        FROM runs r
        JOIN configs c ON (c.project, c.run) = (r.project, r.run) AND c.key = $key
        LEFT JOIN (SELECT project, run, min(onset) AS onset FROM findings
                   WHERE severity = 'critical' AND state <> 'past' GROUP BY ALL) f
               ON (f.project, f.run) = (r.project, r.run)
        WHERE r.removed IS NULL
        GROUP BY choice ORDER BY share DESC, choice
    """,
    "What is the cause, by setting?": """
        SELECT c.value AS choice, f.rule, count(DISTINCT (f.project, f.run)) AS runs, median(f.onset) AS median_onset
        FROM findings f
        JOIN configs c ON (c.project, c.run) = (f.project, f.run) AND c.key = $key
        WHERE f.state = 'open' AND f.severity <> 'info'
        GROUP BY ALL ORDER BY runs DESC, choice, rule LIMIT 10
    """,
    "How good was the reward before the first critical finding, and how good is it at the end?": """
        WITH onsets AS (SELECT project, run, min(onset) AS onset FROM findings
                        WHERE severity = 'critical' AND state <> 'past' GROUP BY ALL)
        SELECT o.project, o.run, o.onset, max(v.value) FILTER (v.step <= o.onset) AS best_before,
               arg_max(v.value, v.step) AS at_the_end
        FROM onsets o
        JOIN values v ON (v.project, v.run) = (o.project, o.run)
        WHERE v.metric IN ('reward/score/mean', 'reward/score_not_aborted/mean')
        GROUP BY ALL ORDER BY best_before - at_the_end DESC LIMIT 10
    """,
    "Does the gradient norm of the first steps tell which runs become sick?": """
        SELECT r.verdict, count(DISTINCT (r.project, r.run)) AS runs,
               round(quantile_cont(v.value, 0.5), 4) AS median, round(quantile_cont(v.value, 0.95), 4) AS p95
        FROM values v JOIN runs r ON (r.project, r.run) = (v.project, v.run)
        WHERE v.metric = 'policy/grad_norm' AND isfinite(v.value) AND v.step < r.first_step + 20
        GROUP BY r.verdict ORDER BY runs DESC
    """,
    "Where does the time go?": """
        SELECT phase, count(DISTINCT (project, run)) AS runs, round(sum(seconds), 1) AS seconds,
               round(sum(seconds) / sum(sum(seconds)) OVER (), 3) AS share
        FROM phases WHERE NOT timer AND rank = 0
        GROUP BY phase ORDER BY seconds DESC LIMIT 10
    """,
}
DIFFERS_MOST = """
    SELECT key FROM configs WHERE key NOT LIKE '%seed%'
    GROUP BY key ORDER BY (count(DISTINCT value) BETWEEN 2 AND 20) DESC, count(DISTINCT value) DESC, key LIMIT 1
"""


def connect(fleet: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection with a view of each table that there is."""
    connection = duckdb.connect()
    for table in ("values", "phases", "runs", "configs", "findings"):
        if any((fleet / table).rglob("*.parquet")):
            files = str(fleet / table / "**" / "*.parquet").replace("'", "''")
            # Projects and ids are texts, also those that look like numbers.
            source = f"read_parquet('{files}', hive_partitioning = true, hive_types_autocast = false)"
            connection.sql(f'CREATE VIEW "{table}" AS SELECT * FROM {source}')
    return connection


def main(fleet: str, key: str | None = None) -> None:
    """Print the answers."""
    connection = connect(Path(fleet))
    views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    if key is None:
        [(key,)] = connection.execute(DIFFERS_MOST).fetchall() or [("",)]
    for question, query in QUESTIONS.items():
        if "FROM phases" in query and ("phases",) not in views:
            continue
        print(f"\n{question}" + (f" ({key})" if "$key" in query else ""))
        print(connection.sql(query, params={"key": key} if "$key" in query else None))


if __name__ == "__main__":
    main(*sys.argv[1:])
