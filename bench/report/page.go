package report

import (
	"fmt"
	"os"
	"strings"
)

// ReplaceIn puts the Markdown table into a page, between the lines "<!-- NAME -->" and "<!-- /NAME -->", in place of
// what was there. A page without them is left as it is and is an error, so that a table never lands in a wrong place.
func (r *Report) ReplaceIn(path, name string) error {
	var table strings.Builder
	if err := r.Markdown(&table); err != nil {
		return err
	}
	return ReplaceText(path, name, table.String())
}

// ReplaceText is ReplaceIn for a text that is another form of a report.
func ReplaceText(path, name, text string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	page := string(b)
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	head, rest, ok := strings.Cut(page, begin)
	if !ok {
		return fmt.Errorf("report: %s has no line %q", path, strings.TrimSpace(begin))
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return fmt.Errorf("report: %s has no line %q after %q", path, end, strings.TrimSpace(begin))
	}
	if err := os.WriteFile(path, []byte(head+begin+"\n"+text+"\n"+end+tail), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
