// Owning handles of HDF5.
#pragma once

#include <hdf5.h>

#include "runtime/base/handle.h"

namespace rondo::keras {

template <herr_t (*Close)(hid_t)>
struct HidTraits {
  static hid_t empty() { return H5I_INVALID_HID; }
  static void destroy(hid_t id) { Close(id); }
};

using FileHandle = Handle<hid_t, HidTraits<&H5Fclose>>;
using ObjectHandle = Handle<hid_t, HidTraits<&H5Oclose>>;
using AttributeHandle = Handle<hid_t, HidTraits<&H5Aclose>>;
using SpaceHandle = Handle<hid_t, HidTraits<&H5Sclose>>;
using TypeHandle = Handle<hid_t, HidTraits<&H5Tclose>>;
using PropertiesHandle = Handle<hid_t, HidTraits<&H5Pclose>>;

}  // namespace rondo::keras
