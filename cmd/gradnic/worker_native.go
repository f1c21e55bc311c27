package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"gradnic/control"
	"gradnic/internal/allreduce"
	"gradnic/wire/inet"
	"gradnic/worker/native"
)

// nativeFlags are what gradnic worker --protocol native takes beside the rest.
type nativeFlags struct {
	nic       inet.Addr
	job       uint16
	op, order string
	codec     string
	feedback  bool
	keys      string
}

func (n *nativeFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(textFlag{set: func(s string) error { return n.nic.UnmarshalText([]byte(s)) }, typing: "address"}, "nic", "the NIC's IPv4 address: native, or for a job that is installed without a controller")
	f.Uint16Var(&n.job, "number", native.DefaultJob, "native: the job's number on the wire, as gradnic install job --number has it")
	renamed(f, "job", "number")
	f.StringVar(&n.op, "op", "", "native: the operation that the job must have: sum, mean, min or max")
	f.StringVar(&n.order, "order", "", "native: the order that the job must have: arrival or ranked")
	f.StringVar(&n.codec, "codec", "", "native: the codec that the job must have, as gradnic show codecs names it; none for no codec")
	f.StringVar(&n.keys, "keys", "", "native: file that has this worker's key, or all of the job's, as gradnic install job --keys writes it")
	f.BoolVar(&n.feedback, "feedback", true, "native: error feedback, for codecs that are meant to be used with it (top-k)")
}

// run is gradnic worker --protocol native; o has the flags that both protocols take.
func (n *nativeFlags) run(cmd *cobra.Command, o *allreduce.Options, ip inet.Addr, output *outputFlags) error {
	for _, f := range []string{"controller", "threads", "elements", "saturate", "multicast"} {
		if cmd.Flags().Changed(f) {
			return usageErrorf("--%s is not for protocol native: the job says it, or nothing does", f)
		}
	}
	switch {
	case n.nic.IsZero():
		return usageErrorf("--nic is missing: the NIC's address, which `gradnic show nic` tells")
	case ip.IsZero():
		return usageErrorf("--ip is missing: this worker's address, on the interface that leads to the NIC")
	}
	no := allreduce.NativeOptions{
		Worker:   native.Config{Rank: o.Worker.Rank, Workers: o.Worker.Workers, Job: n.job, NIC: n.nic, IP: ip, Window: o.Worker.Outstanding, Codec: n.codec, Seed: o.Seed},
		Feedback: n.feedback,
		Type:     o.Type, Op: n.op, Order: n.order, Input: o.Input, Random: o.Random, Seed: o.Seed, Output: o.Output,
		Iterations: o.Iterations, Warmup: o.Warmup, Check: o.Check, Deadline: o.Deadline, JoinTimeout: o.JoinTimeout,
	}
	no.Worker.Waiting = func(what string) { fmt.Fprintf(cmd.ErrOrStderr(), "gradnic worker: waiting: %s\n", what) }
	if n.keys != "" {
		key, err := control.ReadKey(n.keys, o.Worker.Rank)
		if err != nil {
			return err
		}
		no.Worker.Key = &key
	}
	if cmd.Flags().Changed("udp-port") {
		no.Worker.Port = o.Worker.Port
	}
	if cmd.Flags().Changed("timeout") {
		no.Worker.Timeout = o.Worker.Timeout
	}
	if err := no.Validate(); err != nil {
		return usageErrorf("%w", err)
	}
	report, err := allreduce.RunNative(cmd.Context(), no)
	if err != nil && len(report.Rows) == 0 && !output.json && !output.pretty {
		return err
	}
	return errors.Join(err, output.print(cmd.OutOrStdout(), report, report.Table))
}
