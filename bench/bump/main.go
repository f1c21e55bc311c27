// Command bump measures the bump in the wire over links of a real rate, and leaves build/bench/bump.json and a table.
//
//	host 0 - [NIC 0] - link - [NIC 1] - host 1
//
// Each is a network namespace. The link is a bridge with tbf on its ports (internal/netlab), tried first by a raw AF_XDP
// sender: more than 1.02 of the rate across makes a run INVALID. Host 0 sends datagrams of real gradients from a UDP socket,
// host 1 counts the payload that its socket gets, and compares every datagram with what it should be: for the bump,
// what the codec makes of it.
//
// The bare link is the same two NICs passing the same datagrams as they are. Rates to offer are searched for each of the
// two, since a sender that is faster than a machine of few cores only takes time from the NICs; then they take turns.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	o := options{}
	flag.StringVar(&o.out, "out", "build/bench/bump.json", "write the report to this file")
	page := flag.String("page", "", "put the table into this page, between its lines <!-- bump -->")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds in which the bare link and the bump have their turn")
	flag.DurationVar(&o.each, "each", time.Second, "how long a turn takes")
	flag.Parse()
	if flag.NArg() > 0 || o.rounds < 1 || o.each < 10*time.Millisecond {
		fmt.Fprintln(os.Stderr, "bump: takes no arguments, at least one round, and turns of 10ms and up")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	o.cases = []linkCase{{500e6, 3.3}, {2e9, 0}, {10e9, 0}}
	r, err := measure(ctx, o)
	if err == nil {
		err = r.WriteFile(o.out)
	}
	if err == nil && *page != "" {
		err = r.ReplaceIn(*page, "bump")
	}
	if err == nil {
		err = r.Markdown(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bump:", err)
		os.Exit(1)
	}
}
