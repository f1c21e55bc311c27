package control

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestGuardTurnsPanicIntoError(t *testing.T) {
	var log bytes.Buffer
	guard := Guard(slog.New(slog.NewTextHandler(&log, nil)))
	resp, err := guard(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { panic("oh") })
	if resp != nil || status.Code(err) != codes.Internal || !strings.Contains(log.String(), "panic=oh") {
		t.Errorf("%v, %v, log %q", resp, err, log.String())
	}
}
