package crash

import (
	"errors"
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestOnlyFileSystemsOfThisMachineProveAnything(t *testing.T) {
	for name, magic := range map[string]uint32{
		"nfs": 0x6969, "smb": 0x517b, "smb2": 0xfe534d42, "cifs": 0xff534d42, "fuse": 0x65735546, "9p": 0x01021997,
		"ceph": 0x00c36400, "afs": 0x5346414f, "ocfs2": 0x7461636f, "gfs2": 0x01161970, "coda": 0x73757245,
		"vboxsf": 0x786f4256, "bcachefs": 0xca451a4e,
	} {
		assert.Equal(t, locals[magic], false, name)
	}
	file, err := os.Open("/proc/self/status") // a file of this user, in procfs
	require.NoError(t, err)
	defer file.Close()
	_, err = evidence(file, "S")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}
