package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gradnic/bench/collective"
	"gradnic/bench/rate"
	benchreport "gradnic/bench/report"
)

func newBenchAllReduceCmd() *cobra.Command {
	var (
		o                       collective.Options
		t                       collective.TableOptions
		from, to, link, outFile string
		loss                    percent
		out                     output
	)
	cmd := &cobra.Command{
		Use:   "allreduce",
		Short: "All-reduces between workers behind links of their own: transports as nccl-tests prints them, or what links allow",
		Long: `Measures all-reduces of float32 between workers in namespaces of their own. Needs root. Every sum is checked.

With -b, -e, --transports, --link or --loss: a table as nccl-tests prints it, for each transport and size, out of place and in place:
the native protocol, with codecs (native+bfp16, ...), SwitchML, a parameter server over UDP sockets, gloo where Debian's
python3-torch is installed and MPI where openmpi-bin and python3-mpi4py are.

Otherwise the table of docs/performance.md: links of 200 Mbit/s (MTU 1500) or 1 Gbit/s (MTU 9000), the native protocol against
what the link allows, and gloo's ring over the same kind of links. A raw AF_XDP sender tries each kind of link first.`,
		Example: `  gradnic bench allreduce -b 64K -e 16M -f 4 --transports native,gloo,mpi
  gradnic bench allreduce -b 1M -e 1M -n 100 --link 1Gbit/s-L2 --mtu 9000 -J table.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			f := cmd.Flags()
			table := false
			for _, name := range []string{"minbytes", "maxbytes", "transports", "link", "output_file", "workers", "loss"} {
				table = table || f.Changed(name)
			}
			if !table {
				return out.measure(cmd, func(p place) (*benchreport.Report, error) {
					o.Dir, o.Log, o.Command = p.dir, p.log, p.command
					return collective.Run(cmd.Context(), o)
				})
			}
			if t.From, err = bytesOf(from); err != nil {
				return usageErrorf("-b: %v", err)
			}
			if t.To, err = bytesOf(to); err != nil {
				return usageErrorf("-e: %v", err)
			}
			l, err := rate.Parse(link)
			if err != nil || (l.Unit != rate.L2 && l.Unit != rate.None) {
				return usageErrorf("--link %q: want max, or bits of frames such as 1Gbit/s-L2", link)
			}
			t.Link.Rate, t.Loss = uint64(l.Value), float64(loss)
			out.bare = true
			return out.measure(cmd, func(p place) (*benchreport.Report, error) {
				t.Dir, t.Log, t.Command = p.dir, p.log, p.command
				result, err := collective.Compare(cmd.Context(), t)
				if result == nil {
					return nil, err
				}
				err = errors.Join(err, result.Write(cmd.OutOrStdout()))
				if outFile != "" {
					err = errors.Join(err, result.WriteFile(outFile))
				}
				return result.Report(), err
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, "rounds of each size, of the table of docs/performance.md")
	f.StringVarP(&from, "minbytes", "b", "64K", "smallest size")
	f.StringVarP(&to, "maxbytes", "e", "16M", "largest size")
	f.IntVarP(&t.Factor, "stepfactor", "f", 4, "from one size to the next")
	f.IntVarP(&t.Rounds, "iters", "n", 10, "rounds of each size and way; a 99th percentile needs 100")
	f.IntVarP(&t.WarmUp, "warmup_iters", "w", 2, "rounds before them")
	f.StringVarP(&outFile, "output_file", "J", "", "write the table to this file as JSON")
	f.IntVar(&t.Workers, "workers", 4, "1 to 32")
	f.StringSliceVar(&t.Transports, "transports", collective.Transports(), "what is compared")
	f.StringVar(&link, "link", "max", "rate of each worker's link, such as 1Gbit/s-L2; max: a plain veth")
	f.Var(&loss, "loss", "frames that the NIC loses in each direction of each link, in percent; native and switchml only")
	f.IntVar(&t.Link.MTU, "mtu", 1500, "of the links")
	out.flags(cmd)
	return cmd
}

// bytesOf reads a size as nccl-tests writes it: a number with K, M or G.
func bytesOf(s string) (int, error) {
	number, shift := s, 0
	for i, unit := range []string{"K", "M", "G"} {
		if n, ok := strings.CutSuffix(strings.ToUpper(s), unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 1<<30>>shift {
		return 0, errors.New("want a number of bytes up to 1G, with K, M or G")
	}
	return n << shift, nil
}
