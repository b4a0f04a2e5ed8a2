"""Measures Lamina beside JAX, and against the limits of DESIGN section 9.

    make bench                                 every suite of `suites.SUITES`
    make bench ARGS='pairs --mesh 2,2,2'       one of them
    make bench ARGS='--quick'                  a few cases of each, to see that it works
    make bench-processes                       4 processes over Gloo
    python -m benchmarks report                docs/benchmarks.md from benchmarks/results/*.json

**How to add a suite.**  Write a module with `run(settings: Settings) -> Result`, and add its row to `suites.SUITES`.
A Result holds tables, limits (with whether they are held), curves to draw and failures; the command prints it, writes
it to `benchmarks/results/NAME.json`, and `report` turns that into the page.  Honour `settings.quick`: a few seconds.
Times are medians of interleaved repeats (`timing.interleaved`), and compared as ratios within one run.
"""
