package ncclstyle

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// Both is one operation measured out of place and in place, as nccl-tests prints the two beside each other.
type Both struct {
	Bytes    int64
	Elements int64
	Type     string
	RedOp    string
	Ranks    int
	Ways     [2]*Way // out of place, in place; nil: not measured
}

// Way is one of the two. P99 is 0 when there were too few rounds for it.
type Way struct {
	Time, P50, P99 time.Duration
	Wrong          int64 // -1 if nobody looked
}

const (
	bothRow = " %12d  %12d  %6s  %6s"
	wayHead = "  %9s  %7s  %7s  %6s  %9s  %9s"
	wayRow  = "  %9s  %7.2f  %7.2f  %6s  %9s  %9s"
)

// WriteBothHeader writes the lines above the rows: times of the slowest rank, percentiles behind nccl-tests' columns.
func WriteBothHeader(w io.Writer) error {
	two := func(format string, cells ...any) string { s := fmt.Sprintf(format, cells...); return s + s }
	for _, line := range []string{
		fmt.Sprintf("#%12s  %12s  %6s  %6s  %57s  %57s\n", "", "", "", "", "out-of-place", "in-place"),
		fmt.Sprintf("#%12s  %12s  %6s  %6s", "size", "count", "type", "redop") + two(wayHead, "time", "algbw", "busbw", "#wrong", "p50", "p99") + "\n",
		fmt.Sprintf("#%12s  %12s  %6s  %6s", "(B)", "(elements)", "", "") + two(wayHead, "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)") + "\n",
	} {
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

// Write writes the row as one line.
func (b Both) Write(w io.Writer) error {
	line := fmt.Sprintf(bothRow, b.Bytes, b.Elements, b.Type, b.RedOp)
	for _, x := range b.Ways {
		if x == nil {
			line += fmt.Sprintf(wayHead, "N/A", "N/A", "N/A", "N/A", "N/A", "N/A")
			continue
		}
		r := Row{Bytes: b.Bytes, Ranks: b.Ranks, Time: x.Time}
		wrong, p99 := "N/A", "N/A"
		if x.Wrong >= 0 {
			wrong = strconv.FormatInt(x.Wrong, 10)
		}
		if x.P99 > 0 {
			p99 = micros(x.P99)
		}
		line += fmt.Sprintf(wayRow, micros(x.Time), r.AlgBW(), r.BusBW(), wrong, micros(x.P50), p99)
	}
	_, err := io.WriteString(w, line+"\n")
	return err
}
