"""Runs one unittest file and prints `@@ ok|fail|skip NAME REASON` for each test, for tests/run.py."""
import importlib.util
import os
import sys
import unittest


class Lines(unittest.TextTestResult):
    def _say(self, what, test, why=""):
        name = test.id().replace(" ", "_") if hasattr(test, "id") else str(test).replace(" ", "_")
        sys.stdout.write(f"@@ {what} {name} {' '.join(why.split())}\n")
        sys.stdout.flush()

    def addSuccess(self, test):
        super().addSuccess(test)
        self._say("ok", test)

    def addError(self, test, err):
        super().addError(test, err)
        self._say("fail", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._say("fail", test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._say("fail", subtest)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._say("skip", test, reason)


def main():
    path = sys.argv[1]
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    if len(sys.argv) > 2:
        wanted = sys.argv[2:]
        flat = [t for group in suite for t in group]
        suite = unittest.TestSuite(t for t in flat if any(w in t.id() for w in wanted))
    runner = unittest.TextTestRunner(stream=sys.stdout, resultclass=Lines, verbosity=0)
    return 0 if runner.run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
