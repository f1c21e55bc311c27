package main

import (
	"os"

	"github.com/spf13/pflag"

	"gradnic/control"
	"gradnic/control/card"
	"gradnic/control/daemon"
	"gradnic/control/switchml"
	"gradnic/xdp"
)

// guardFlags are who may come in, and what they may take.
type guardFlags struct {
	quotas []string
	memory string
	strays uint64
	card   string
	pace   bool
	// workers of the SwitchML controller
	workers []string
}

func (g *guardFlags) register(f *pflag.FlagSet, o *daemon.Options) {
	f.StringVar(&o.TLS.Listen, "tls", "", "answer the API on HOST:PORT to who shows a certificate; off unless given")
	f.StringVar(&o.TLS.Cert, "tls-cert", "", "the NIC's certificate, a PEM file")
	f.StringVar(&o.TLS.Key, "tls-key", "", "its key, a PEM file")
	f.StringVar(&o.TLS.CA, "tls-ca", "", "the CA of those who may come in, a PEM file")
	f.StringArrayVar(&g.quotas, "quota", nil, "what a tenant's jobs may take, as team-a=jobs:4,slots:4096,memory:64MiB,packets:200000 (frames a second on each port); once for each, * for those not named")
	f.StringArrayVar(&g.workers, "switchml-worker", nil, "MAC,IP or MAC,IP,PORT of a worker that may be in a SwitchML session; once for each (default anybody who reaches the port)")
	f.StringVar(&g.card, "card", "", "refuse what this card would refuse: a profile's name (gradnic show card), or the path of one")
	f.Uint64Var(&g.strays, "stray-packets", 0, "frames a second that each port takes of senders that are no job's workers (default no bound, or 10000 when a quota bounds packets)")
	f.BoolVar(&g.pace, "card-pace", false, "let the ports be no faster than the card's link")
	f.StringVar(&g.memory, "slot-memory", "", "what the slots of all jobs may take, as 512MiB (default no bound)")
}

// named are the workers of the SwitchML controller.
func (g *guardFlags) named() (all []switchml.Worker, err error) {
	for _, text := range g.workers {
		w, err := switchml.ParseWorker(text)
		if err != nil {
			return nil, usageErrorf("--switchml-worker: %w", err)
		}
		all = append(all, w)
	}
	return all, nil
}

func (g *guardFlags) limits() (l control.Limits, err error) {
	if l.Strays = g.strays; g.strays > xdp.MaxRate {
		return l, usageErrorf("--stray-packets %d: legal are up to %d frames a second", g.strays, xdp.MaxRate)
	}
	if g.memory != "" {
		if l.Memory, err = control.ParseSize(g.memory); err != nil {
			return l, usageErrorf("--slot-memory: %w", err)
		}
	}
	if g.card != "" {
		if l.Card, err = card.Load(g.card); err != nil {
			return l, err
		}
	}
	if l.Pace = g.pace; l.Pace && (l.Card == nil || l.Card.LinkRate == nil) {
		return l, usageErrorf("--card-pace: it needs --card with a link_rate")
	}
	for _, text := range g.quotas {
		tenant, q, err := control.ParseQuota(text)
		if err != nil {
			return l, usageErrorf("--quota: %w", err)
		}
		if _, twice := l.Tenants[tenant]; twice {
			return l, usageErrorf("--quota: tenant %s has two", tenant)
		}
		if l.Tenants == nil {
			l.Tenants = map[string]control.Quota{}
		}
		l.Tenants[tenant] = q
	}
	return l, nil
}

// registerTLS adds the certificates that a client shows on TCP.
func (f *apiFlags) registerTLS(flags *pflag.FlagSet) {
	flags.StringVar(&f.tls.Cert, "tls-cert", os.Getenv("GRADNIC_TLS_CERT"), "certificate to show on TCP, a PEM file (GRADNIC_TLS_CERT)")
	flags.StringVar(&f.tls.Key, "tls-key", os.Getenv("GRADNIC_TLS_KEY"), "its key, a PEM file (GRADNIC_TLS_KEY)")
	flags.StringVar(&f.tls.CA, "tls-ca", os.Getenv("GRADNIC_TLS_CA"), "the CA of the NIC's certificate, a PEM file (GRADNIC_TLS_CA)")
}
