//go:build linux

package clusters

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// TestDoctor runs the tests of dblock doctor that need a node of a cluster.
func TestDoctor(t *testing.T) {
	if *doctor == "" {
		t.Skip("this is scripts/soak clusters -doctor")
	}
	c, err := kinds[*kind](*folder)
	require.NoError(t, err)
	defer c.close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, eventually(ctx, c.healthy))
	product, _, _ := strings.Cut(*kind, "-")
	tests := exec.Command(*doctor, "-test.v", "-test.run", "^TestDoctorSeesANodeOf")
	tests.Dir = "cmd/dblock"
	tests.Env = append(os.Environ(), "DBLOCK_TEST_"+strings.ToUpper(product)+"_DSN="+c.node)
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	require.NoError(t, tests.Run())
}
