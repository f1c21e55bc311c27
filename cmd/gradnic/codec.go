package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"gradnic/codec"
	"gradnic/codec/fidelity"
	"gradnic/internal/npy"
)

func newCodecCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "codec",
		Short: "Try number formats and compressors on data",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	cmd.AddCommand(newCodecEvalCmd())
	return cmd
}

func newCodecEvalCmd() *cobra.Command {
	var (
		output outputFlags
		html   string
		names  []string
		o      fidelity.Options
	)
	cmd := &cobra.Command{
		Use:   "eval FILE.npy",
		Short: "Send an array of float32 through every codec: ratio, what is lost, speed",
		Long: `Encodes and decodes the array (NumPy's format, float32) with every codec, or those named, and prints the compression
ratio, the normalised mean squared error, the largest error and how much of the stated bound it uses, the bias, the
cosine between data and result, and the speed of one goroutine. Fails when an error exceeds a stated bound.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Message < 0 || o.Repeats < 0 {
				return usageErrorf("--message and --repeats must not be negative")
			}
			if o.Repeats == 0 {
				o.Repeats = -1
			}
			codecs := codec.All()
			if len(names) > 0 {
				codecs = codecs[:0:0]
				for _, name := range names {
					c, err := codec.ByName(name)
					if err != nil {
						return usageErrorf("--codec: %v", err)
					}
					codecs = append(codecs, c)
				}
			}
			x, err := npy.Load[float32](args[0])
			if err != nil {
				return err
			}
			if len(x) == 0 {
				return fmt.Errorf("%s has no elements", args[0])
			}
			d := fidelity.Document{File: args[0], Data: fidelity.Describe(x, o), Message: o.Message, Seed: o.Seed}
			if d.Message == 0 {
				d.Message = len(x)
			}
			if d.Codecs, err = fidelity.Evaluate(x, codecs, o); err != nil {
				return err
			}
			if html != "" {
				if err := writePage(html, d); err != nil {
					return err
				}
			}
			return output.print(cmd.OutOrStdout(), d, d.Table)
		},
	}
	output.register(cmd)
	f := cmd.Flags()
	f.StringVar(&html, "html", "", "also write a page with plots to this file")
	f.StringSliceVar(&names, "codec", nil, "only these codecs, comma-separated (see gradnic show codecs)")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the stochastic codecs")
	f.IntVar(&o.Message, "message", 0, "elements in a message, 0: all in one")
	f.IntVar(&o.Repeats, "repeats", 9, "timed runs, of which the median counts; 0: no rates")
	return cmd
}

// writePage writes a document's page to a file.
func writePage(path string, d interface{ Page(io.Writer) error }) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = fmt.Errorf("write the page %s: %w", path, e)
		}
	}()
	w := bufio.NewWriter(f)
	if err := d.Page(w); err != nil {
		return fmt.Errorf("write the page %s: %w", path, err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the page %s: %w", path, err)
	}
	return nil
}

// newShowCodecsCmd is the one view that needs no running NIC.
func newShowCodecsCmd(output *outputFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "codecs",
		Short: "The number formats and compressors of this binary (needs no running NIC)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := fidelity.List()
			return output.print(cmd.OutOrStdout(), struct {
				Codecs []fidelity.Codec `json:"codecs"`
			}{list}, func(w io.Writer) error { return fidelity.TableList(w, list) })
		},
	}
}
