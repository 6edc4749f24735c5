"""What every program owes the person who types it: help, version, checks, errors with the way out."""
import os
import signal
import subprocess
import tempfile
import unittest

import tw

SITE_PROGRAMS = ("tw-feedhandler", "tw-publisher", "tw-subscribe")
PROGRAMS = SITE_PROGRAMS + ("tw-config", "tw-run", "tw-gen", "tw-demo", "tw-exchange", "tw-fabric", "tw-gen-docs")


def run(*argv, timeout=60):
    p = subprocess.run([tw.program(argv[0]), *argv[1:]], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       timeout=timeout * tw.SLOW)
    return p.returncode, p.stdout, p.stderr


class Options(unittest.TestCase):
    def test_help_goes_to_standard_output(self):
        for name in PROGRAMS:
            with self.subTest(program=name):
                status, out, err = run(name, "--help")
                self.assertEqual((status, err), (0, ""))
                self.assertIn("sage: " + name, out)

    def test_version(self):
        for name in PROGRAMS:
            with self.subTest(program=name):
                status, out, err = run(name, "--version")
                self.assertEqual((status, err), (0, ""))
                self.assertRegex(out, rf"^{name} \d+\.\d+\.\d+\n$")

    def test_an_unknown_option_is_a_usage_error(self):
        for name in PROGRAMS:
            with self.subTest(program=name):
                status, out, err = run(name, "--frobnicate")
                self.assertEqual((status, out), (64, ""))
                self.assertIn("frobnicate", err)
                self.assertIn("--help", err)

    def test_a_missing_value_is_a_usage_error(self):
        for name, option in (("tw-feedhandler", "--config"), ("tw-publisher", "-c"), ("tw-subscribe", "--count"),
                             ("tw-config", "--as"), ("tw-run", "--rate"), ("tw-gen", "--seed"),
                             ("tw-demo", "--seconds"), ("tw-exchange", "--linger"), ("tw-fabric", "--mtu"),
                             ("tw-gen-docs", "--root")):
            with self.subTest(program=name):
                status, out, err = run(name, option)
                self.assertEqual((status, out), (64, ""))
                self.assertRegex(err, rf"option.*{option.strip('-')}")
                self.assertIn(name + ": --help", err)

    def test_an_argument_too_many_is_a_usage_error(self):
        for name in PROGRAMS:
            if name != "tw-run":     # whose arguments are files
                with self.subTest(program=name):
                    status, out, err = run(name, "what", "else")
                    self.assertEqual((status, out), (64, ""))
                    self.assertIn(name + ": --help", err)

    def test_a_wrong_value_names_option_found_and_allowed(self):
        for argv, says in (
                (("tw-subscribe", "--count", "0"), "--count: found '0', allowed 1 to "),
                (("tw-subscribe", "--channel", "65536"), "--channel: found '65536', allowed 1 to 65535"),
                (("tw-subscribe", "--format", "xml"), "--format: found 'xml', allowed text, json or none"),
                (("tw-subscribe", "--start", "now"), "--start: found 'now', allowed session or live"),
                (("tw-subscribe", "--mode", "fast"), "--mode: found 'fast', allowed ordered or latest"),
                (("tw-run", "--rate", "-1"), "--rate: found '-1', allowed 0 to 1000000000"),
                (("tw-run", "--speed", "1x"), "--speed: found '1x', allowed 0 to 100000"),
                (("tw-run", "--loss-b", "101"), "--loss-b: found '101', allowed 0 to 100 with"),
                (("tw-run", "--depth", "deep"), "--depth: found 'deep', allowed quotes, levels or orders"),
                (("tw-run", "--protocol", "../x"), "--protocol: found '../x', allowed small letters"),
                (("tw-gen", "--symbols", "4294967296"), "--symbols: found '4294967296', allowed 0 to"),
                (("tw-gen", "--group", "10.0.0.1:5"), "--group: found '10.0.0.1:5', allowed a multicast"),
                (("tw-gen", "--start", "today"), "--start: found 'today', allowed a time like"),
                (("tw-gen", "--lines", "b"), "--lines: found 'b', allowed a or ab"),
                (("tw-demo", "--seconds", "0"), "--seconds: found '0', allowed 1 to 3600"),
                (("tw-demo", "--loss", "1..5"), "--loss: found '1..5', allowed 0 to 100 with"),
                (("tw-exchange", "--drop-a", "100.1"), "--drop-a: found '100.1', allowed 0 to 100 with"),
                (("tw-exchange", "--rerequest", "239.192.0.1:5"), "allowed an ADDRESS:PORT"),
                (("tw-exchange", "--interface-a", "eth0"), "--interface-a: found 'eth0', allowed an IPv4"),
                (("tw-fabric", "--size", "66"), "--size: found '66', allowed 64 to 4096, a multiple of 4"),
                (("tw-fabric", "--transport", "tcp"), "--transport: found 'tcp', allowed udp or verbs")):
            with self.subTest(argv=argv):
                status, out, err = run(*argv)
                self.assertEqual((status, out), (64, ""))
                self.assertIn(says, err)
                self.assertIn(argv[0] + ": --help", err)

    def test_no_arguments_say_what_is_missing(self):
        for name in SITE_PROGRAMS + ("tw-config", "tw-run", "tw-gen"):
            with self.subTest(program=name):
                status, out, err = run(name)
                self.assertEqual((status, out), (64, ""))
                self.assertIn("--help", err)


class Configuration(unittest.TestCase):
    def test_a_missing_site_file(self):
        for name in SITE_PROGRAMS:
            with self.subTest(program=name):
                status, _, err = run(name, "-c", "/nowhere/site.yaml")
                self.assertEqual(status, 69)
                self.assertIn("/nowhere/site.yaml", err)
                self.assertIn("No such file", err)

    def test_an_error_names_file_line_key_found_and_allowed(self):
        with tw.Site(extra="slow_turn_us: soon\n") as site:
            for name in SITE_PROGRAMS:
                with self.subTest(program=name):
                    status, _, err = run(name, "-c", site.path)
                    self.assertEqual(status, 78)
                    self.assertRegex(err, r"site\.yaml:\d+: slow_turn_us: found 'soon', allowed 1 to")

    def test_an_unknown_key_names_the_nearest(self):
        with tw.Site(extra="slow_turn_ms: 5\n") as site:
            status, _, err = run("tw-config", "check", site.path)
            self.assertEqual(status, 78)
            self.assertIn("slow_turn_ms", err)
            self.assertIn("slow_turn_us", err)

    def test_check_opens_nothing_and_says_what_it_would_do(self):
        with tempfile.TemporaryDirectory() as d:
            feed = tw.generate(os.path.join(d, "feed.pcap"), messages=2000)
            with tw.Site(files=[feed]) as site:
                for name, entry in (("tw-feedhandler", "feed"), ("tw-publisher", "pub"),
                                    ("tw-subscribe", "local")):
                    with self.subTest(program=name):
                        status, out, err = run(name, "-c", site.path, "--as", entry, "--check")
                        self.assertEqual(status, 0, err)
                        self.assertNotEqual(out, "")
                self.assertEqual([f for f in os.listdir(site.run_dir) if f.startswith("bus-")], [])

    def test_production_refuses_faults(self):
        with tw.Site(fault="  seed: 1\n  correlated_loss_pct: 1\n") as site:
            with open(site.path, encoding="utf-8") as f:
                text = f.read().replace("environment: test", "environment: production")
            with open(site.path, "w", encoding="utf-8") as f:
                f.write(text)
            status, _, err = run("tw-subscribe", "-c", site.path, "--as", "local")
            self.assertEqual(status, 78)
            self.assertIn("fault", err)
            self.assertIn("production", err)

    def test_verbs_is_refused_with_the_cure(self):
        with tw.Site() as site:
            with open(site.path, encoding="utf-8") as f:
                text = f.read().replace("transport: udp", "transport: verbs")
            with open(site.path, "w", encoding="utf-8") as f:
                f.write(text)
            status, _, err = run("tw-publisher", "-c", site.path, "--as", "pub")
            self.assertNotEqual(status, 0)
            self.assertIn("udp", err)


class Signals(unittest.TestCase):
    def test_stopping_is_clean_and_gives_a_summary(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number), tw.Site() as site:
                sub = site.subscriber()
                with open(os.path.join(site.dir, "pub.json"), "w+", encoding="utf-8") as out:
                    pub = site.start("tw-publisher", "--as", "pub", stdout=out)
                    pub.wait_line("ready")
                    for p in (sub, pub):
                        p.signal(number)
                        self.assertEqual(p.wait(), 0, "\n".join(p.lines))
                    out.seek(0)
                    self.assertEqual(tw.parse_json(out.read())["program"], "tw-publisher")
                self.assertEqual(sub.summary()["messages"], 0)
                left = [f for f in os.listdir(site.run_dir) if f.endswith(".counters")]
                self.assertEqual(left, [], "counter files go with their process")
