package interop

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// size is how many values a packet has, as people read it; workers under test choose that themselves.
func (r *Report) size() string {
	if r.Elements == 0 {
		return ""
	}
	return fmt.Sprintf(", %d elements a packet", r.Elements)
}

// path is a case's name among those of all suites and sizes.
func (r *Report) path(separator string, more ...string) string {
	names := []string{r.Suite}
	if r.Elements != 0 {
		names = append(names, strconv.Itoa(r.Elements))
	}
	return strings.Join(append(names, more...), separator)
}

// TAP writes reports in the Test Anything Protocol, version 13. A case that is unsupported is one that was skipped.
func TAP(w io.Writer, reports ...*Report) error {
	var b strings.Builder
	n := 0
	for _, r := range reports {
		n += len(r.Results)
	}
	fmt.Fprintf(&b, "TAP version 13\n1..%d\n", n)
	i := 0
	for _, r := range reports {
		fmt.Fprintf(&b, "# suite %s%s, target %s\n", r.Suite, r.size(), r.Target)
		for k := range r.Results {
			i++
			x := &r.Results[k]
			state, tail := "ok", ""
			switch x.Verdict {
			case Failed:
				state = "not ok"
			case Unsupported:
				tail = " # SKIP " + firstLine(x.Detail)
			}
			fmt.Fprintf(&b, "%s %d - %s%s\n", state, i, r.path("/", x.Case), tail)
			if x.Verdict != Failed {
				continue
			}
			fmt.Fprintf(&b, "  ---\n  why: %q\n", strings.TrimSpace(x.Why))
			if x.Capture != "" {
				fmt.Fprintf(&b, "  capture: %q\n", x.Capture)
			}
			fmt.Fprintf(&b, "  detail: |\n    %s\n  ...\n", strings.ReplaceAll(strings.TrimSpace(x.Detail), "\n", "\n    "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes reports as JUnit's XML.
func JUnit(w io.Writer, reports ...*Report) error {
	var all junitSuites
	for _, r := range reports {
		s := junitSuite{
			Name: r.path("-") + " on " + r.Target, Tests: len(r.Results), Failures: r.Count(Failed),
			Skipped: r.Count(Unsupported), Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05"),
		}
		var total time.Duration
		for k := range r.Results {
			x := &r.Results[k]
			total += x.Took
			c := junitCase{Name: x.Case, Class: r.path("."), Time: fmt.Sprintf("%.3f", x.Took.Seconds())}
			switch x.Verdict {
			case Failed:
				c.Failure = &junitMessage{firstLine(x.Detail), x.Detail + "\n" + x.Capture}
			case Unsupported:
				c.Skipped = &junitMessage{Message: firstLine(x.Detail)}
			}
			s.Cases = append(s.Cases, c)
		}
		s.Time = fmt.Sprintf("%.3f", total.Seconds())
		all.Suites = append(all.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// Matrix writes a row for each case and a column for each report.
func Matrix(w io.Writer, reports ...*Report) error {
	var names []string
	seen := map[string]map[*Report]Verdict{}
	width := len("case")
	for _, r := range reports {
		for k := range r.Results {
			x := &r.Results[k]
			name := r.Suite + "/" + x.Case
			if seen[name] == nil {
				seen[name] = map[*Report]Verdict{}
				names = append(names, name)
				width = max(width, len(name))
			}
			seen[name][r] = x.Verdict
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", width, "case")
	for _, r := range reports {
		head := "verdict"
		if r.Elements != 0 {
			head = fmt.Sprintf("%d elements", r.Elements)
		}
		fmt.Fprintf(&b, "  %-11s", head)
	}
	b.WriteByte('\n')
	for _, name := range names {
		fmt.Fprintf(&b, "%-*s", width, name)
		for _, r := range reports {
			word := "-"
			if v, ok := seen[name][r]; ok {
				word = v.String()
			}
			fmt.Fprintf(&b, "  %-11s", word)
		}
		b.WriteByte('\n')
	}
	for _, r := range reports {
		fmt.Fprintf(&b, "%s%s, %s: %d passed, %d failed, %d unsupported\n", r.Suite, r.size(), r.Target, r.Count(Passed), r.Count(Failed), r.Count(Unsupported))
	}
	_, err := io.WriteString(w, strings.ReplaceAll(b.String(), " \n", "\n"))
	return err
}

// keep writes the frames of a case as pcapng.
func keep(dir string, r *Report, res *Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("captures: %w", err)
	}
	path := filepath.Join(dir, r.path("-", res.Case)+".pcapng")
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("captures: %w", err)
	}
	err = WriteCapture(f, res)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("captures: %s: %w", path, err)
	}
	res.Capture = path
	return nil
}

// WriteCapture writes the frames of a case as pcapng: a comment says which end sent each, and the first one what the case
// is about.
func WriteCapture(w io.Writer, res *Result) error {
	n, err := pcapgo.NewNgWriterInterface(w, pcapgo.NgInterface{Name: "wire", LinkType: layers.LinkTypeEthernet, TimestampResolution: 9},
		pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "gradnic interop", Comment: res.Case + ": " + res.Why}})
	if err != nil {
		return err
	}
	for _, s := range res.Frames {
		comment, direction := "the card sent it", pcapgo.NgEpbFlagDirectionInbound
		if s.Sent {
			comment, direction = "the kit sent it, "+s.Note, pcapgo.NgEpbFlagDirectionOutbound
		}
		err := n.WritePacketWithOptions(gopacket.CaptureInfo{Timestamp: s.Time, CaptureLength: len(s.Data), Length: len(s.Data)}, s.Data,
			pcapgo.NgPacketOptions{Comments: []string{comment}, Flags: &pcapgo.NgEpbFlags{Direction: direction}})
		if err != nil {
			return err
		}
	}
	return n.Flush()
}
