package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"gradnic/bench/report"
)

// Where the datagrams go whose delay is measured.
const (
	bareDelayPort = 9100
	bumpDelayPort = 9002
)

// delayRounds is how many percentiles are made of the datagrams: each of a share of them.
const delayRounds = 5

// delays measures how long a datagram takes from host 0's send to host 1's receive, one at a time, so that nothing queues;
// the two ways take turns, datagram by datagram. All threads sleep until the datagram is there, as they would at such a rate.
func (o options) delays(ctx context.Context, rep *report.Report, r *rig, l *load, link string) (err error) {
	type delayWay struct {
		from, to *net.UDPConn
		want     [][]byte
		took     []float64 // us
		lost     int
	}
	ways := [2]delayWay{{want: l.payloads}, {want: l.restored}}
	for i, port := range [...]int{bareDelayPort, bumpDelayPort} {
		w := &ways[i]
		if w.from, w.to, err = r.dial(port); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.from.Close(), w.to.Close()) }()
	}
	buf := make([]byte, 2048)
	for i := range o.pings {
		for k := range ways {
			w := &ways[k]
			n := i % len(l.payloads)
			if err := w.to.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				return fmt.Errorf("delay: %w", err)
			}
			start := time.Now()
			if _, err := w.from.Write(l.payloads[n]); err != nil {
				return fmt.Errorf("delay: send: %w", err)
			}
			got, err := w.to.Read(buf)
			took := time.Since(start)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				w.lost++
				continue
			}
			if err != nil {
				return fmt.Errorf("delay: receive: %w", err)
			}
			if !bytes.Equal(buf[:got], w.want[n]) {
				return fmt.Errorf("delay: datagram %d is not what it should be", i)
			}
			w.took = append(w.took, float64(took.Nanoseconds())/1e3)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	if ways[0].lost+ways[1].lost > o.pings/100 {
		return fmt.Errorf("delay: %d and %d of %d datagrams were lost", ways[0].lost, ways[1].lost, o.pings)
	}
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		bare, bumped := quantiles(ways[0].took, q.at), quantiles(ways[1].took, q.at)
		added := make([]float64, delayRounds)
		for i := range added {
			added[i] = bumped[i] - bare[i]
		}
		rep.Add(report.Row{Name: "delay/bare/" + link + "/" + q.name, Unit: "us"}, bare, nil)
		rep.Add(report.Row{Name: "delay/bump-bfp16/" + link + "/" + q.name, Unit: "us"}, bumped, nil)
		rep.Add(report.Row{Name: "delay/added/" + link + "/" + q.name, Unit: "us",
			Bound: "encoding and decoding; a frame on the wire that is shorter by two thirds"}, added, nil)
	}
	return nil
}

// quantiles is the quantile of each of delayRounds shares of the values, in order.
func quantiles(v []float64, at float64) []float64 {
	out := make([]float64, 0, delayRounds)
	for i := range delayRounds {
		share := slices.Sorted(slices.Values(v[i*len(v)/delayRounds : (i+1)*len(v)/delayRounds]))
		out = append(out, share[min(int(at*float64(len(share))), len(share)-1)])
	}
	return out
}
