// Command bump measures the bump in the wire over links of a real rate, and leaves build/bench/bump.json and a table.
//
//	host 0 - [NIC 0] - link - [NIC 1] - host 1
//
// Each is a network namespace. The link is a bridge with tbf on its ports (internal/netlab), tried first by a raw AF_XDP
// sender: more than 1.02 of the rate across makes a run INVALID. Host 0 sends datagrams of real gradients from a UDP socket,
// host 1 counts the payload that its socket gets, and compares every datagram with what it should be: for the bump,
// what the codec makes of it.
//
// The bare link is the same two NICs passing the same datagrams as they are; where it leaves a link with a goal unfilled, the rows are
// INVALID. The two take turns. The sender keeps as much
// under way as fills the link, and no more: one that is faster than a machine of few cores only takes time from the NICs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/bench/report"
)

// goal is how many times the payload of the bare link the bump should carry, on links up to the rate goalUpTo.
const (
	goal     = 3.3
	goalUpTo = 500e6
)

func main() {
	o := options{}
	flag.StringVar(&o.out, "out", "build/bench/bump.json", "write the report to this file")
	rates := flag.String("rates", "500e6,2e9,10e9", "rates of the links in bit/s, comma-separated")
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
	for _, text := range strings.Split(*rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate < 1e6 || rate > 100e9 {
			fmt.Fprintf(os.Stderr, "bump: -rates %q: legal are 1e6 to 100e9\n", text)
			os.Exit(2)
		}
		c := linkCase{rate: uint64(rate)}
		if c.rate <= goalUpTo {
			c.goal = goal
		}
		o.cases = append(o.cases, c)
	}
	r, err := measure(ctx, o)
	if r != nil {
		err = errors.Join(err, leave(r, o.out, *page))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bump:", err)
		os.Exit(1)
	}
	v := r.Verdict()
	if line := v.MissedLine(); line != "" {
		fmt.Fprintln(os.Stderr, "bump:", line)
	}
	if line := v.InvalidLine(); line != "" {
		fmt.Fprintln(os.Stderr, "bump:", line)
		os.Exit(3) // as gradnic bench does
	}
}

// leave writes the report, also of a run that was interrupted; the page is then left as it is.
func leave(r *report.Report, file, page string) error {
	if err := r.WriteFile(file); err != nil {
		return err
	}
	if page != "" && r.Interrupted == "" {
		if err := r.ReplaceIn(page, "bump"); err != nil {
			return err
		}
	}
	return r.Markdown(os.Stdout)
}
