package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
)

// apiFlags are what every verb that talks to a running NIC has.
type apiFlags struct {
	address string
	timeout time.Duration
	tls     control.TLSFiles
}

func (f *apiFlags) register(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&f.address, "api", control.DefaultAddress(), "the NIC's API: path of its Unix socket, or tcp://HOST:PORT")
	f.registerTLS(cmd.PersistentFlags())
	cmd.PersistentFlags().DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for the NIC's answer")
}

// call connects, calls do, and turns gRPC's errors into lines for people.
func (f *apiFlags) call(cmd *cobra.Command, do func(ctx context.Context, c *control.Client) error) error {
	c, err := control.DialTLS(f.address, f.tls)
	if err != nil {
		return usageErrorf("--api: %w", err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	return f.explain(do(ctx, c))
}

// stream is call without a bound in time, for what goes on until it is ended. Whether a NIC answers is asked first.
func (f *apiFlags) stream(cmd *cobra.Command, do func(c *control.Client) error) error {
	c, err := control.DialTLS(f.address, f.tls)
	if err != nil {
		return usageErrorf("--api: %w", err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	if _, err := c.GetNIC(ctx, &apiv1.GetNICRequest{}); err != nil {
		return f.explain(err)
	}
	return f.explain(do(c))
}

func (f *apiFlags) explain(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		why := transportError(s.Message())
		if strings.Contains(why, "tls: ") {
			return fmt.Errorf("who answers on %s and this end refuse each other's certificates (%s): --tls-cert and --tls-key are to be signed by the CA that the NIC has as tls-ca, and the NIC's certificate by --tls-ca", f.address, why)
		}
		return fmt.Errorf("no NIC answers on %s (%s): start one with gradnic run, or say where it is with --api", f.address, why)
	case codes.DeadlineExceeded:
		return fmt.Errorf("the NIC on %s did not answer within %v: give it longer with --timeout", f.address, f.timeout)
	case codes.Canceled:
		return errors.New("interrupted")
	}
	return errors.New(s.Message())
}

// transportError is what went wrong of what gRPC says when it gets no connection.
func transportError(message string) string {
	if quoted, ok := strings.CutPrefix(message, "connection error: desc = "); ok {
		if plain, err := strconv.Unquote(quoted); err == nil {
			message = plain
		}
	}
	for _, prefix := range []string{"transport: ", "Error while dialing: "} {
		message = strings.TrimPrefix(message, prefix)
	}
	return message
}

// outputFlags choose between a table and JSON.
type outputFlags struct{ json, pretty bool }

func (f *outputFlags) register(cmd *cobra.Command) {
	cmd.PersistentFlags().BoolVarP(&f.json, "json", "j", false, "print one JSON document")
	cmd.PersistentFlags().BoolVarP(&f.pretty, "pretty", "p", false, "print one JSON document, indented")
}

// print writes the document as JSON when that was asked for, else as a table.
func (f *outputFlags) print(w io.Writer, document any, table func(io.Writer) error) error {
	if !f.json && !f.pretty {
		return table(w)
	}
	e := json.NewEncoder(w)
	if f.pretty {
		e.SetIndent("", "  ")
	}
	return e.Encode(document)
}
