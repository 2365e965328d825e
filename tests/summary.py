#!/usr/bin/env python3
"""Counts the tests in a folder of JUnit files, one a suite, names those that failed, and ends with the line
`N passed, N failed` (`, N skipped` behind it when there are).  Exits 1 when a test failed or none ran.

CTest's files have one case a program; the programs are cmocka's, which print a line for each test, so those are
counted.  An empty or broken file is a runner that died: one failure.
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

RAN = re.compile(r"^\[ RUN +\] (\S+)", re.M)
PASSED = re.compile(r"^\[ +OK \] (\S+)", re.M)
SKIPPED = re.compile(r"^\[ +SKIPPED +\] (\S+)", re.M)


def of_case(case):
    """Yields (name, outcome) of each test in a JUnit test case."""
    name = case.get("name", "?")
    outcome = "passed"
    if case.find("failure") is not None or case.find("error") is not None:
        outcome = "failed"
    elif case.find("skipped") is not None:
        outcome = "skipped"
    output = case.findtext("system-out") or ""
    ran, passed, skipped = RAN.findall(output), set(PASSED.findall(output)), set(SKIPPED.findall(output))
    if not ran:
        yield name, outcome
        return
    outcomes = {test: "passed" if test in passed else "skipped" if test in skipped else "failed" for test in ran}
    for test, one in outcomes.items():
        yield f"{name} {test}", one
    if outcome == "failed" and "failed" not in outcomes.values():
        yield f"{name} (the program failed after its tests, a leak perhaps)", "failed"


def of_file(path):
    try:
        cases = ElementTree.parse(path).getroot().iter("testcase")
    except ElementTree.ParseError:
        return [("(the runner died before it wrote its report)", "failed")]
    return [one for case in cases for one in of_case(case)]


def main():
    total = collections.Counter()
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.xml")):
        tests = of_file(path)
        count = collections.Counter(outcome for _, outcome in tests)
        total += count
        print(f"    {path.stem}: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
        for name, outcome in tests:
            if outcome == "failed":
                print(f"        failed: {name}")
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    print(f"{total['passed']} passed, {total['failed']} failed{skipped}")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
