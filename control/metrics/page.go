package metrics

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"gradnic/control"
	"gradnic/dataplane"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// pageWorkers bounds the workers on the page; a browser is no place for 8,000 rows.
const pageWorkers = 256

// page is what the status page shows.
type page struct {
	IP, MAC, Version, Taken, Fault, Card string
	Ports                                []pagePort
	Jobs                                 []pageJob
	Workers                              []pageWorker
	MoreWorkers                          int
	Lanes                                []dataplane.LaneSnapshot
	Drops                                []pageDrop
}

type pagePort struct {
	Name, State, Why, Kind                                          string
	Received, Contributed, Duplicates, Dropped, Kernel, Transmitted uint64
}

type pageJob struct {
	Name, Tenant, Missing    string
	Joined, Workers          int
	InUse, Waiting, Slots    int
	Results, Resent, Wrapped uint64
}

type pageWorker struct {
	Job, Port, Seen string
	dataplane.WorkerStatus
}

type pageDrop struct {
	Reason string
	Count  uint64
}

func takePage(s *control.Server) page {
	nic := s.NIC()
	snap, cfg := nic.Snapshot(), nic.Config()
	p := page{IP: cfg.IP.String(), MAC: cfg.MAC.String(), Version: s.Version(), Taken: snap.Taken.UTC().Format("2006-01-02 15:04:05 UTC"), Lanes: snap.Lanes}
	if len(snap.Lanes) == 1 { // over more lanes the sums are exact only when no traffic runs
		if err := snap.Check(); err != nil {
			p.Fault = err.Error()
		}
	}
	if c := s.Jobs().Card(); c != nil {
		p.Card = c.What
	}
	var names []string
	for i := range snap.Ports {
		q := &snap.Ports[i]
		names = append(names, q.Name)
		kind := q.Kind
		if q.Mode != "" {
			kind += "-" + q.Mode
		}
		p.Ports = append(p.Ports, pagePort{
			Name: q.Name, State: string(q.State), Why: q.Why, Kind: kind, Received: q.Received, Contributed: q.Contributed, Duplicates: q.Duplicates,
			Dropped: q.Dropped(), Kernel: q.Kernel.RxDropped + q.Kernel.RxRingFull + q.Kernel.FillRingEmpty, Transmitted: q.Transmitted,
		})
	}
	for _, j := range s.Jobs().List() {
		row := pageJob{
			Name: j.Name, Tenant: j.Tenant, Workers: j.Workers, InUse: j.Use.InUse, Waiting: j.Use.Waiting, Slots: j.Use.Total,
			Results: j.Results, Resent: j.Resent, Wrapped: j.Wrapped, Missing: strings.Trim(fmt.Sprint(j.Missing), "[]"),
		}
		for _, w := range j.Status {
			if w.Joined {
				row.Joined++
			}
		}
		p.Jobs = append(p.Jobs, row)
		for _, w := range j.Members() {
			if len(p.Workers) == pageWorkers {
				p.MoreWorkers++
				continue
			}
			port, seen := "", "never"
			if w.Port >= 0 && w.Port < len(names) {
				port = names[w.Port]
			}
			if !w.LastSeen.IsZero() {
				seen = max(0, snap.Taken.Sub(w.LastSeen)).Round(time.Second).String() + " ago"
			}
			p.Workers = append(p.Workers, pageWorker{j.Name, port, seen, w})
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(snap.Total.Drops)) {
		p.Drops = append(p.Drops, pageDrop{reason, snap.Total.Drops[reason]})
	}
	return p
}

// servePage answers with the page, which loads nothing from elsewhere and may not.
func servePage(s *control.Server) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var out bytes.Buffer
		if err := pageTemplate.Execute(&out, takePage(s)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write(out.Bytes()) // a browser that went away needs none
	}
}
