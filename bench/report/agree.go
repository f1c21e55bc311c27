package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Agreement holds the figures of two runs of one measurement against each other: do their medians agree, and if not, why.
type Agreement struct {
	Title     string
	Command   string
	Tolerance float64 // how far medians may be apart, 0.1 is a tenth
	Machines  [2]Machine
	Figures   []Agreed
	Only      [2][]string // rows that one of the runs alone has
	// Common is, for each unit with at least five figures that are no ratios, the median of second over first: what the machine did.
	Common map[string]float64
}

// Agreed is one figure of both runs: the value of a row, or its ratio.
type Agreed struct {
	Name    string
	Unit    string // "x" of a ratio
	Medians [2]float64
	Apart   float64    // the greater median over the lesser, less 1; infinite when one is 0 and not the other: -1
	Rounds  [2]float64 // the greatest round of each run over its least, less 1; -1: not known
	N       [2]int     // rounds
	Loads   [2]float64 // load average
	P       float64    // by the Mann-Whitney U test; 1 where it cannot be told
	Beyond  bool       // apart by more than the tolerance, or INVALID in one of the runs
	Why     string     // what the documents tell of the cause, for those beyond
}

// What tells of a cause.
const (
	otherLoad   = 0.5  // difference of load averages, and at least a fifth of the higher
	otherStolen = 0.01 // difference of the shares that the hypervisor took
	enough      = 5    // figures that change alike tell of the machine
)

// Agree holds two runs against each other. Both the medians of a row and those of its ratio to a yardstick count. It refuses
// documents that different commands made: they are no runs of the same measurement.
func Agree(first, second *Report, tolerance float64) (*Agreement, error) {
	if first.Command != second.Command {
		return nil, fmt.Errorf("report: %q and %q are not runs of the same measurement", first.Command, second.Command)
	}
	if !(tolerance > 0) {
		return nil, fmt.Errorf("report: a tolerance of %v: must be above 0", tolerance)
	}
	a := &Agreement{Title: second.Title, Command: second.Command, Tolerance: tolerance, Machines: [2]Machine{first.Machine, second.Machine}}
	type key struct{ name, unit string }
	var order []key
	var rows [2]map[key]sample
	for i, r := range []*Report{first, second} {
		rows[i] = map[key]sample{}
		for _, row := range r.Rows {
			for _, f := range figures(row, r.Machine) {
				k := key{f.name, f.unit}
				if _, ok := rows[i][k]; ok {
					continue // a row for each yardstick has the same value
				}
				rows[i][k] = f
				if _, ok := rows[0][k]; i == 1 && ok {
					order = append(order, k)
				}
				if _, ok := rows[0][k]; i == 1 && !ok {
					a.Only[1] = append(a.Only[1], f.name)
				}
			}
		}
	}
	quotients := map[string][]float64{}
	for _, k := range order {
		x, y := rows[0][k], rows[1][k]
		delete(rows[0], k)
		f := Agreed{
			Name: k.name, Unit: k.unit, Medians: [2]float64{x.median, y.median}, Rounds: [2]float64{within(x.rounds), within(y.rounds)},
			N: [2]int{len(x.rounds), len(y.rounds)}, Loads: [2]float64{x.load, y.load}, P: MannWhitney(x.rounds, y.rounds), Apart: apart(x.median, y.median),
		}
		f.Beyond = f.Apart < 0 || f.Apart > tolerance+1e-9 || isInvalid(x.note) || isInvalid(y.note)
		if f.Beyond {
			f.Why = strings.Join(notes(x.note, y.note), "; ")
		}
		if !x.ratio && x.median > 0 && y.median > 0 {
			quotients[k.unit] = append(quotients[k.unit], y.median/x.median)
		}
		a.Figures = append(a.Figures, f)
	}
	for k := range rows[0] {
		a.Only[0] = append(a.Only[0], k.name)
	}
	slices.Sort(a.Only[0])
	a.Common = map[string]float64{}
	for unit, q := range quotients {
		if len(q) >= enough {
			a.Common[unit] = Median(q)
		}
	}
	for i := range a.Figures {
		if f := &a.Figures[i]; f.Beyond {
			a.explain(f)
		}
	}
	return a, nil
}

// sample is one figure of one run.
type sample struct {
	name, unit, note string
	median, load     float64
	rounds           []float64
	ratio            bool
}

func figures(row Row, m Machine) []sample {
	load := row.Load
	if load == 0 {
		load = m.Load
	}
	s := sample{name: row.Name, unit: row.Unit, note: row.Note, median: row.Value, load: load, rounds: row.Samples}
	if row.Against == "" {
		return []sample{s}
	}
	q := s
	q.name, q.unit, q.median, q.ratio = row.Name+" over "+row.Against, "x", row.Ratio, true
	s.rounds = row.Values
	return []sample{s, q}
}

// notes say which run's figure is not to be trusted.
func notes(first, second string) (why []string) {
	for i, note := range []string{first, second} {
		if note != "" {
			why = append(why, fmt.Sprintf("the %s run's is %s", ordinal[i], note))
		}
	}
	return why
}

var ordinal = [2]string{"first", "second"}

// within is how far the rounds of a run are from each other; -1 when that is not known.
func within(rounds []float64) float64 {
	if len(rounds) < 2 {
		return -1
	}
	return apart(slices.Min(rounds), slices.Max(rounds))
}

// apart is the greater over the lesser, less 1; -1 when that is no number.
func apart(x, y float64) float64 {
	if x == y {
		return 0
	}
	d := math.Max(x, y)/math.Min(x, y) - 1
	if !(d >= 0) || math.IsInf(d, 0) {
		return -1
	}
	return d
}

// explain adds to why a figure is beyond the tolerance: what the two documents tell.
func (a *Agreement) explain(f *Agreed) {
	var why []string
	if f.Why != "" {
		why = append(why, f.Why)
	}
	if f.Apart >= 0 && f.Apart <= a.Tolerance+1e-9 {
		f.Why = strings.Join(why, "; ") // it is INVALID, and agrees
		return
	}
	wide := math.Max(f.Rounds[0], f.Rounds[1])
	switch {
	case wide < 0 && min(f.Rounds[0], f.Rounds[1]) < 0 && f.Apart >= 0:
		why = append(why, "one round a run: its spread is not known")
	case wide >= f.Apart && f.Apart >= 0:
		why = append(why, fmt.Sprintf("rounds of one run are as far apart (%s)", percent(wide)))
	case f.Apart >= 0 && f.P >= significant && min(f.N[0], f.N[1]) < 4:
		why = append(why, fmt.Sprintf("%d and %d rounds are too few to tell it from chance", f.N[0], f.N[1]))
	case f.Apart >= 0 && f.P >= significant:
		why = append(why, fmt.Sprintf("may be chance (p=%.2f)", f.P))
	}
	if c, ok := a.Common[f.Unit]; ok && f.Apart >= 0 && math.Abs(c-1) > a.Tolerance/2 && apart(f.Medians[0]*c, f.Medians[1]) <= a.Tolerance {
		why = append(why, fmt.Sprintf("the figures in %s changed alike, by %+.0f %% in the median: the machine did", f.Unit, 100*(c-1)))
	}
	low, high := min(f.Loads[0], f.Loads[1]), max(f.Loads[0], f.Loads[1])
	switch cpus := max(a.Machines[0].CPUs, 1); {
	case high-low >= otherLoad && high-low >= high/5:
		why = append(why, fmt.Sprintf("load %.1f, then %.1f", f.Loads[0], f.Loads[1]))
	case high > float64(cpus+1): // a generator and a device alone make about two
		why = append(why, fmt.Sprintf("load %.1f on %d CPUs: other work ran", high, cpus))
	}
	if x, y := a.Machines[0].Stolen, a.Machines[1].Stolen; math.Abs(x-y) >= otherStolen {
		why = append(why, fmt.Sprintf("the hypervisor took %.1f %% of the processors, then %.1f %%", 100*x, 100*y))
	}
	if len(why) == 0 {
		why = append(why, fmt.Sprintf("neither spread nor load tells (p=%.3f)", f.P))
	}
	f.Why = strings.Join(why, "; ")
}

// percent writes a difference for people.
func percent(v float64) string {
	if v < 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

// Beyond is how many figures are further apart than the tolerance.
func (a *Agreement) Beyond() (n int) {
	for _, f := range a.Figures {
		if f.Beyond {
			n++
		}
	}
	return n
}

// WriteAgreements writes a line for each measurement, then every figure that is further apart than the tolerance, with what
// the documents tell of the cause.
func WriteAgreements(w io.Writer, all []*Agreement) error {
	var b strings.Builder
	b.WriteString("| measurement | first run | second run | figures | within the tolerance | beyond, or INVALID | half are closer than |\n|---|---|---|---:|---:|---:|---:|\n")
	beyond := 0
	for _, a := range all {
		n := a.Beyond()
		beyond += n
		var far []float64
		for _, f := range a.Figures {
			if f.Apart >= 0 {
				far = append(far, f.Apart)
			}
		}
		half := ""
		if len(far) > 0 {
			half = fmt.Sprintf("%.1f %%", 100*Median(far))
		}
		fmt.Fprintf(&b, "| %s (`%s`) | %s | %s | %d | %d, %s | %d | %s |\n", a.Title, a.Command, when(a.Machines[0]), when(a.Machines[1]),
			len(a.Figures), len(a.Figures)-n, percent(a.Tolerance), n, half)
	}
	for _, a := range all {
		for i, only := range a.Only {
			if len(only) > 0 {
				fmt.Fprintf(&b, "\n%s: only the %s run has %s.\n", a.Title, ordinal[i], some(only))
			}
		}
	}
	if beyond > 0 {
		b.WriteString("\n| beyond, or INVALID | first | second | apart | rounds of the first | of the second | load | why |\n|---|---:|---:|---:|---:|---:|---|---|\n")
	}
	for _, a := range all {
		for _, f := range a.Figures {
			if f.Beyond {
				fmt.Fprintf(&b, "| %s, %s | %s | %s | %s | %s | %s | %.1f, %.1f | %s |\n", f.Name, f.Unit, figure(f.Medians[0]), figure(f.Medians[1]),
					percent(f.Apart), percent(f.Rounds[0]), percent(f.Rounds[1]), f.Loads[0], f.Loads[1], f.Why)
			}
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func when(m Machine) string {
	s := fmt.Sprintf("%s, load %.1f", m.Time, m.Load)
	if m.Stolen >= noticeable {
		s += fmt.Sprintf(", %.1f %% stolen", 100*m.Stolen)
	}
	return s
}
