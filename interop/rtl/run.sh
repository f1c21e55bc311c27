#!/usr/bin/env bash
# Compiles the aggregator, when it has changed, and runs it between standard input and output: see pipe.v for the
# framing and the plusargs, which are passed on.
#
#   SIM=iverilog       compiles in no time (the default); SIM=verilator takes ten seconds to compile and runs 15 times as fast
#   PROTOCOL=switchml  or native
#   SLOT=9             2^9 slots
#   RTL_BUILD=DIR      where what is compiled is kept; default build/rtl at the top
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sim=${SIM:-iverilog} protocol=${PROTOCOL:-switchml} slot=${SLOT:-9} build=${RTL_BUILD:-$here/../../build/rtl}
program=$build/$protocol-$slot-$sim
case $protocol in
switchml) native=0 ;;
native) native=1 ;;
*)
	echo "run.sh: PROTOCOL=$protocol: switchml or native" >&2
	exit 1
	;;
esac

command -v "$sim" >/dev/null || { echo "run.sh: $sim is not installed (Debian: apt-get install $sim)" >&2; exit 1; }
mkdir -p "$build"
# Several may start at a time: one compiles, the others wait for it.
exec 9>"$program.lock"
flock 9
if [[ ! -x $program || -n $(find "$here" \( -name '*.v' -o -name '*.cpp' \) -newer "$program") ]]; then
	case $sim in
	iverilog)
		iverilog -g2005 -Wall -Wno-timescale -s pipe -P "pipe.SLOT=$slot" -P "pipe.NATIVE=$native" -o "$program.new" "$here"/*.v >&2
		;;
	verilator)
		verilator --cc --exe --build --main --timing -Wno-fatal -Wno-WIDTH -Wno-UNUSED --top-module pipe "-GSLOT=$slot" "-GNATIVE=$native" \
			-CFLAGS -DVL_USER_FINISH -Mdir "$program.dir" -o "$program.new" "$here"/*.v "$here/verilator/finish.cpp" >&2
		;;
	*)
		echo "run.sh: SIM=$sim: iverilog or verilator" >&2
		exit 1
		;;
	esac
	mv "$program.new" "$program"
fi
exec 9>&-
if [[ $sim == iverilog ]]; then
	exec vvp -n "$program" "$@"
fi
exec "$program" "$@"
