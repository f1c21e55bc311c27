// Package ncclstyle prints the results of collective operations as nccl-tests
// does, since that is the table that people who run them can read at a glance:
// size, count, type, operation, time, algorithm and bus bandwidth, wrong elements.
//
// Bandwidths are in GB/s, 10^9 bytes a second. Algorithm bandwidth is the array's
// bytes by the time. Bus bandwidth is what an optimal ring would have to carry on
// every link to be as fast, algbw * 2(n-1)/n for an all-reduce of n ranks, so that
// it can be held against the links' speed whatever n is (nccl-tests,
// doc/PERFORMANCE.md).
package ncclstyle

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// Row is one measured operation.
type Row struct {
	Bytes    int64         `json:"size"`  // of one rank's array
	Elements int64         `json:"count"` // of one rank's array
	Type     string        `json:"type"`  // as NCCL calls it: float, int32, ...
	RedOp    string        `json:"redop"` // sum, ...
	Ranks    int           `json:"ranks"`
	Time     time.Duration `json:"time_ns"`
	// Wrong is the number of wrong elements, -1 if nobody looked.
	Wrong int64 `json:"wrong"`
	// BusFactor is what the algorithm bandwidth is multiplied by; 0 means an all-reduce's.
	BusFactor float64 `json:"-"`
}

// AlgBW is the algorithm bandwidth in GB/s, 0 if no time passed.
func (r Row) AlgBW() float64 {
	if r.Time <= 0 {
		return 0
	}
	return float64(r.Bytes) / float64(r.Time.Nanoseconds())
}

// BusBW is the bus bandwidth in GB/s.
func (r Row) BusBW() float64 {
	if r.BusFactor != 0 {
		return r.AlgBW() * r.BusFactor
	}
	if r.Ranks < 1 {
		return 0
	}
	return r.AlgBW() * 2 * float64(r.Ranks-1) / float64(r.Ranks)
}

const (
	headFormat = "#%12s  %12s  %8s  %6s  %9s  %7s  %7s  %6s\n"
	rowFormat  = " %12d  %12d  %8s  %6s  %9s  %7.2f  %7.2f  %6s\n"
)

// WriteHeader writes the two lines above the rows.
func WriteHeader(w io.Writer) error {
	if _, err := fmt.Fprintf(w, headFormat, "size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong"); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, headFormat, "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "")
	return err
}

// Write writes the row as one line, in columns under [WriteHeader].
func (r Row) Write(w io.Writer) error {
	wrong := "N/A"
	if r.Wrong >= 0 {
		wrong = strconv.FormatInt(r.Wrong, 10)
	}
	_, err := fmt.Fprintf(w, rowFormat, r.Bytes, r.Elements, r.Type, r.RedOp, micros(r.Time), r.AlgBW(), r.BusBW(), wrong)
	return err
}

// micros prints a time in us with as many digits as mean something.
func micros(d time.Duration) string {
	us := float64(d.Nanoseconds()) / 1e3
	switch {
	case us < 10:
		return strconv.FormatFloat(us, 'f', 2, 64)
	case us < 10000:
		return strconv.FormatFloat(us, 'f', 1, 64)
	}
	return strconv.FormatFloat(us, 'f', 0, 64)
}
