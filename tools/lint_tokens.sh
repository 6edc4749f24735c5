#!/usr/bin/env bash
# Taste that a compiler does not check.  Prints what it finds; exit status 1 if anything.
set -uo pipefail
shopt -s lastpipe # or what report() notes would be lost with its subshell
cd "$(dirname "$0")/.."
bad=0

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.c' '*.h')
mapfile -t all < <(git ls-files --cached --others --exclude-standard | grep -v '^LICENSE$')

# report TITLE: lines of standard input are findings
report() {
	local found
	found=$(cat)
	if [ -n "$found" ]; then
		printf '%s\n' "lint: $1:" "$found"
		bad=1
	fi
}

# Comments and string literals may name anything: they are blanked before matching.
code() {
	perl -0777 -e '
		for my $file (@ARGV) {
			open(my $fh, "<", $file) or next;
			local $/; my $text = <$fh>;
			$text =~ s{(/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*")}{ my $s = $1; $s =~ s/[^\n]/ /g; $s }gse;
			my $n = 0;
			for my $line (split /\n/, $text) { $n++; print "$file:$n:$line\n"; }
		}' "${sources[@]}"
}
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
code >"$stripped"

grep -E ':[^:]*\bvolatile\b' "$stripped" | grep -vE 'sig_atomic_t|__asm__ volatile|asm volatile' | report "volatile is no synchronisation"
grep -E '\b__(sync|atomic)_[a-z]' "$stripped" | report "C11 atomics, not builtins"
grep -E '\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok)\(' "$stripped" | report "unbounded or error-blind function"
grep -E '\b(rand|srand)\(' "$stripped" | report "no hidden random state"
grep -E '^(include|core|config|feedhandler|publisher|subscriber)/.*\b(usleep|sleep)\(' "$stripped" | report "sleep in product code"
grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${sources[@]}" | report "unfinished mark"
grep -nE '#include [<"](infiniband|rdma)/' "${sources[@]}" | grep -vE '^(core/fabric|tests/rdma)/' | report "verbs headers only below core/fabric and tests/rdma"

# Folder rule: dependencies point one way.
layer() { # DIR FORBIDDEN-REGEX
	grep -nE "#include \"($2)" $(printf '%s\n' "${sources[@]}" | grep "^$1/") /dev/null | report "$1 must not include $2"
}
layer core/base 'wire/|protocol/|fabric/|config/|feedhandler/|publisher/|subscriber/'
layer core/wire 'protocol/|fabric/|config/|feedhandler/|publisher/|subscriber/'
layer core/protocol 'fabric/|config/|feedhandler/|publisher/|subscriber/'
layer core/fabric 'protocol/|config/|feedhandler/|publisher/|subscriber/'
layer feedhandler 'publisher/|subscriber/|fabric/'
layer publisher 'feedhandler/|subscriber/'
layer subscriber 'feedhandler/|publisher/'

# Every ordering label stands on both sides: "/* B1: pairs with B2 */" wants a "B2: pairs with".
perl -e '
	my (%at, %wants);
	for my $file (@ARGV) {
		open(my $fh, "<", $file) or next;
		while (my $line = <$fh>) {
			while ($line =~ /\b([A-Z]{1,2}\d+): (?:[^*]*? )?pairs with ((?:[A-Z]{1,2}\d+(?:, | and )?)+)/g) {
				my ($me, $others) = ($1, $2);
				$at{$me} = "$file:$.";
				push @{$wants{$_}}, "$file:$.: $me wants $_" for $others =~ /[A-Z]{1,2}\d+/g;
			}
		}
	}
	for my $label (sort keys %wants) {
		next if $at{$label};
		print "$_\n" for @{$wants{$label}};
	}' "${sources[@]}" | report "ordering label without its other side"

# Nothing of one machine, of a registry or of a workplace.
above=$(dirname "$PWD")
# a folder as general as /tmp may be named
case $above in
/*/*) grep -nIF "$above/" "${all[@]}" | report "path of this machine" ;;
esac
grep -nIE '(^|[^a-zA-Z0-9_.])/(root|home/[a-z]+)/' "${all[@]}" | grep -v '^tools/lint_tokens.sh:' | report "path of one machine"
grep -nIE 'https?://[a-z0-9.-]*(deb\.debian|registry\.npm|pypi\.org|proxy\.golang)' "${all[@]}" | report "registry host"

for script in $(git ls-files --cached --others --exclude-standard -- '*.sh' .ci/run); do
	bash -n "$script" 2>&1 | report "shell syntax"
done
exit $bad
