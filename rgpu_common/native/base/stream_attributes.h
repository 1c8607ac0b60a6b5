// The attributes of a stream that a program can set. The shim and the emulated device keep and
// refuse the same ones.
#pragma once

#include <atomic>

#include "gen/cuda_abi.gen.h"

namespace rgpu::base {

// All of them are hints: no result of a program depends on them. An access policy window is
// accepted and not kept.
class StreamAttributes {
 public:
  // `domains`: CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT of the stream's device.
  // CUDA_ERROR_INVALID_VALUE: not an attribute of streams.
  CUresult Get(CUstreamAttrID attribute, int priority, int domains,
               CUstreamAttrValue* value) const {
    *value = CUstreamAttrValue{};
    switch (attribute) {
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value->priority = priority;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value->syncPolicy = sync_policy_.load();
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        value->memSyncDomain = domain_.load();
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        value->memSyncDomainMap = MapFor(domains);
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }

  CUresult Set(CUstreamAttrID attribute, int domains, const CUstreamAttrValue& value) {
    switch (attribute) {
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        if (value.syncPolicy < CU_SYNC_POLICY_AUTO ||
            value.syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        sync_policy_ = value.syncPolicy;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        if (value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT &&
            value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        domain_ = value.memSyncDomain;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        if (value.memSyncDomainMap.default_ >= domains ||
            value.memSyncDomainMap.remote >= domains) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        map_ = value.memSyncDomainMap.default_ | value.memSyncDomainMap.remote << 8;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }

  // cuStreamCopyAttributes.
  void CopyFrom(const StreamAttributes& other) {
    sync_policy_ = other.sync_policy_.load();
    domain_ = other.domain_.load();
    map_ = other.map_.load();
  }

 private:
  static constexpr int kDefaultMap = -1;

  // By default the two domains are 0 and 1; a device with one domain has both in it.
  CUlaunchMemSyncDomainMap MapFor(int domains) const {
    const int map = map_.load();
    CUlaunchMemSyncDomainMap out{};
    out.default_ = static_cast<unsigned char>(map == kDefaultMap ? 0 : map & 0xFF);
    out.remote = static_cast<unsigned char>(map == kDefaultMap ? (domains > 1 ? 1 : 0) : map >> 8);
    return out;
  }

  std::atomic<CUsynchronizationPolicy> sync_policy_{CU_SYNC_POLICY_AUTO};
  std::atomic<CUlaunchMemSyncDomain> domain_{CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT};
  std::atomic<int> map_{kDefaultMap};
};

}  // namespace rgpu::base
