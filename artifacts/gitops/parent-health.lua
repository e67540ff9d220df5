-- Argo CD's health of parents of a CompositeController: resource.customizations.health of their kind.
-- Ready and Stalled are conditions that the hook may return, Synced is that of the server (conditions of parentResource).
local health = { status = "Healthy", message = "" }

if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "the controller has not synced this generation yet" }
end
-- What weighs more wins, however the conditions are ordered.
local weight = { Healthy = 0, Suspended = 1, Progressing = 2, Degraded = 3 }
local function consider(status, condition)
  if weight[status] > weight[health.status] then
    health = { status = status, message = (condition.reason or "") .. ": " .. (condition.message or "") }
  end
end
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    consider("Degraded", condition)
  elseif condition.type == "Synced" and condition.status == "False" then
    consider("Degraded", condition)
  elseif condition.type == "Synced" and condition.status == "Unknown" then
    consider(condition.reason == "Paused" and "Suspended" or "Progressing", condition)
  elseif condition.type == "Ready" and condition.status ~= "True" then
    consider("Progressing", condition)
  end
end
return health
